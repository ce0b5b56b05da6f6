"""EROFS metadata and the device as docs/formats/erofs.md and layer.md describe them.

Part of the reader of a stranger, see `stranger`. It imports nothing from the package.
"""

from __future__ import annotations

import stat
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.support.stranger_parts import (
    BLOCK,
    BLOCK_DEVICE,
    CHAR,
    DIRECTORY,
    FILE,
    SYMLINK,
    WHITEOUT,
    Item,
    Runs,
    Table,
    check,
    content_digest,
    open_chunk,
)

PLAIN, INLINE, CHUNKS = 0, 2, 4
KINDS = {
    stat.S_IFDIR: DIRECTORY,
    stat.S_IFREG: FILE,
    stat.S_IFLNK: SYMLINK,
    stat.S_IFCHR: CHAR,
    stat.S_IFBLK: BLOCK_DEVICE,
    stat.S_IFIFO: 6,
    stat.S_IFSOCK: 7,
}
DIRENT_TYPES = {DIRECTORY: 2, FILE: 1, SYMLINK: 7, CHAR: 3, BLOCK_DEVICE: 4, 6: 5, 7: 6}
PREFIXES = {
    1: b"user.",
    2: b"system.posix_acl_access",
    3: b"system.posix_acl_default",
    4: b"trusted.",
    6: b"security.",
}
OVERLAY, ESCAPED = b"trusted.overlay.", b"trusted.overlay.overlay."
MARKER = b"trusted.overlay.whiteout"


@dataclass(frozen=True)
class Device:
    """The data of a layer; packs are the bytes of the packs of the table, in order."""

    table: Table
    packs: list[bytes]

    def read(self, start: int, length: int) -> bytes:
        check(start + length <= self.table.device_bytes, "behind the device")
        data, at = b"", start
        while at < start + length:
            number = bisect_right(self.table.records, at, key=lambda r: r.device_offset) - 1
            record = self.table.records[number]
            stored = self.packs[record.pack][record.pack_offset :][: record.stored]
            data += open_chunk(stored, record.length, record.digest)[at - record.device_offset :]
            at = record.device_offset + record.length
        return data[:length]


@dataclass(frozen=True)
class Inode:
    nid: int
    layout: int
    kind: int
    size: int
    value: int
    number: int
    links: int
    item: Item  # what the image holds, not yet unescaped
    behind: int  # where in the image the xattrs end


class Image:
    """One image: `items` in path order, and by path the data `runs` of every file."""

    def __init__(self, data: bytes, uuid: bytes, device: Device) -> None:
        self._data, self._device = data, device
        names = sorted(self._walk(b"", self._superblock(uuid), set()))
        counts = Counter(nid for _, nid in names)
        first: dict[int, tuple[int, int]] = {}  # nid -> position of its first path, link group
        inodes = {nid: self._inode(nid) for nid in counts}
        contents = {nid: self._runs(inode) for nid, inode in inodes.items() if inode.kind == FILE}
        groups = 0
        self.items: list[Item] = []
        self.runs: dict[bytes, Runs] = {}
        for position, (path, nid) in enumerate(names):
            if nid not in first:
                groups += counts[nid] > 1
                first[nid] = position, groups if counts[nid] > 1 else 0
            inode, (place, group) = inodes[nid], first[nid]
            check(inode.number == place + 1, "another inode number")
            check(inode.kind == DIRECTORY or inode.links == counts[nid], "other links")
            item = unescape(replace(inode.item, path=path, link_group=group))
            if item.kind == FILE:
                self.runs[path] = contents[nid]
                item = replace(item, digest=content_digest(item.size, contents[nid]))
            self.items.append(item)
        check(struct.unpack_from("<Q", data, 1040)[0] == len(counts), "other inodes")

    def _superblock(self, uuid: bytes) -> int:
        """Check all fields; the nid of the root."""
        blocks, device_blocks = len(self._data) // BLOCK, self._device.table.device_bytes // BLOCK
        head = self._data[1024:4096]
        (checksum,) = struct.unpack_from("<I", head, 4)
        check(checksum == crc32c(head[:4] + bytes(4) + head[8:]), "a damaged superblock")
        (inodes,) = struct.unpack_from("<Q", head, 16)
        fields = (0xE0F5E1E2, checksum, 3, 12, 0, 128, inodes, 0, 0, blocks, 0, 0, uuid, b"", 12)
        expected = struct.pack("<IIIBBHQQIIII16s16sI", *fields) + struct.pack("<HHH38x", 0, 1, 9)
        slot = struct.pack("<64xII", device_blocks, 0)
        check(head == (expected + slot).ljust(3072, b"\0"), "another superblock")
        check(len(self._data) == blocks * BLOCK and not any(self._data[:1024]), "another size")
        return 128

    def _inode(self, nid: int) -> Inode:
        at = nid * 32
        fields = struct.unpack_from("<HHHHQIIIIqII16s", self._data, at)
        form, units, mode, _, size, value, number, uid, gid, seconds, nanoseconds, links, _ = fields
        kind, layout = KINDS[stat.S_IFMT(mode)], form >> 1
        check(form & 1 == 1, "a compact inode")
        behind = at + 64 + (12 + 4 * (units - 1) if units else 0)
        item = Item(
            b"", kind, mode & 0o7777, uid, gid, seconds * 10**9 + nanoseconds,
            xattrs=tuple(self._xattrs(at + 64, behind)),
        )  # fmt: skip
        if kind == FILE:
            check(layout == (CHUNKS if size else PLAIN), "another layout")
            item = replace(item, size=size)
        elif kind == SYMLINK:
            item = replace(item, target=self._tail(layout, size, value, behind))
        elif kind in (CHAR, BLOCK_DEVICE):
            minor = value & 0xFF | value >> 12 & 0xFFF00
            item = replace(item, major=value >> 8 & 0xFFF, minor=minor)
        return Inode(nid, layout, kind, size, value, number, links, item, behind)

    def _xattrs(self, at: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        check(not any(self._data[at : min(at + 12, end)]), "shared xattrs")
        at += 12
        while at < end:
            length, prefix, value_length = struct.unpack_from("<BBH", self._data, at)
            name = self._data[at + 4 :][:length]
            yield PREFIXES[prefix] + name, self._data[at + 4 + length :][:value_length]
            at += (4 + length + value_length + 3) // 4 * 4

    def _tail(self, layout: int, size: int, value: int, behind: int) -> bytes:
        """The bytes of a directory or link target."""
        if layout == PLAIN:
            return self._data[value * BLOCK :][:size]
        check(layout == INLINE, "another layout")
        whole = (size - 1) // BLOCK * BLOCK
        return self._data[value * BLOCK :][:whole] + self._data[behind:][: size - whole]

    def _walk(self, path: bytes, nid: int, above: set[int]) -> Iterator[tuple[bytes, int]]:
        """Every path below a directory, and its own, with its nid."""
        check(nid not in above, "a directory in itself")
        yield path, nid
        inode = self._inode(nid)
        children = dict(self._entries(inode))
        check(children.pop(b".") == nid and b".." in children, "no . or ..")
        del children[b".."]
        below = 0
        for name, child in children.items():
            joined = path + b"/" + name if path else name
            if self._inode(child).kind == DIRECTORY:
                below += 1
                yield from self._walk(joined, child, above | {nid})
            else:
                yield joined, child
        check(inode.links == 2 + below, "other links of a directory")

    def _entries(self, inode: Inode) -> Iterator[tuple[bytes, int]]:
        data = self._tail(inode.layout, inode.size, inode.value, inode.behind)
        before = b""
        for start in range(0, len(data), BLOCK):
            block = data[start : start + BLOCK]
            count = struct.unpack_from("<H", block, 8)[0] // 12
            records = list(struct.iter_unpack("<QHBx", block[: 12 * count]))
            ends = [offset for _, offset, _ in records[1:]] + [len(block)]
            for (nid, offset, type_), end in zip(records, ends, strict=True):
                name = block[offset:end].partition(b"\0")[0]
                check(before < name and type_ == DIRENT_TYPES[self._inode(nid).kind], "an entry")
                before = name
                yield name, nid

    def _runs(self, inode: Inode) -> Runs:
        return data_runs(self._pieces(inode)) if inode.size else []

    def _pieces(self, inode: Inode) -> Iterator[tuple[int, bytes]]:
        """What of a file lies on the device."""
        check(32 <= inode.value <= 63, "another chunk format")
        unit = BLOCK << inode.value - 32
        index = (inode.behind + 7) // 8 * 8
        entries = self._data[index : index + 8 * -(-inode.size // unit)]
        for number, (_, device, block) in enumerate(struct.iter_unpack("<HHI", entries)):
            check(device == (block != 0xFFFFFFFF), "another device")
            if device:
                length = min(unit, inode.size - number * unit)
                yield number * unit, self._device.read(block * BLOCK, length)


def unescape(item: Item) -> Item:
    """The entry of the tree of what the image holds."""
    if item.kind == CHAR and (item.major, item.minor) == (0, 0):
        check(item == Item(item.path, CHAR, 0, 0, 0, 0, item.link_group), "a whiteout with fields")
        return replace(item, kind=WHITEOUT)
    xattrs = {}
    for name, value in item.xattrs:
        if name.startswith(ESCAPED):
            xattrs[OVERLAY + name.removeprefix(ESCAPED)] = value
        elif not name.startswith(OVERLAY):
            xattrs[name] = value
    opaque = item.kind == DIRECTORY and dict(item.xattrs).get(b"trusted.overlay.opaque") == b"y"
    kind = item.kind
    value = xattrs.get(MARKER, b"")
    if kind == FILE and item.size == 0 and value[:2] in (b"y", b"yd", b"yf"):
        kind = FILE if value[:2] == b"yf" else CHAR
        xattrs[MARKER] = value[2:]
        if value == b"y":
            del xattrs[MARKER]
    return replace(item, kind=kind, opaque=opaque, xattrs=tuple(sorted(xattrs.items())))


def data_runs(pieces: Iterable[tuple[int, bytes]]) -> Runs:
    runs: list[tuple[int, bytearray]] = []
    for start, data in pieces:
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            if not block.strip(b"\0"):
                continue
            if not runs or runs[-1][0] + len(runs[-1][1]) != start + at:
                runs.append((start + at, bytearray()))
            runs[-1][1].extend(block)
    return [(offset, bytes(data)) for offset, data in runs]


def crc32c(data: bytes) -> int:
    """With a register of ones that is not inverted at the end."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register
