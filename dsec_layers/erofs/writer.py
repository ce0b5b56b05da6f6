"""Writes the EROFS metadata of a tree as a stream; the same tree gives the same bytes.

Inodes follow block 0 in path order, each with its xattrs and whatever describes its data: a chunk
index, a link target or the last block of a directory. Blocks that do not fit there come last.
Directories hold the numbers of inodes that come later, so first the tree is gone through to see how
long everything is, and then again to write it.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final

from dsec_layers.erofs import layout
from dsec_layers.erofs.bodies import (
    Body,
    device_body,
    directory_body,
    directory_shape,
    file_body,
    symlink_body,
    whole_block,
)
from dsec_layers.erofs.layout import BLOCK_BITS, BLOCK_SIZE, INDEX, INODE, SLOT_SIZE, round_up
from dsec_layers.erofs.planning import Extent
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.escaping import stored_entries
from dsec_layers.model.tree import Entry, EntryKind, Tree

# Looking a member up in its enumeration takes ten times as long, and this is done for each entry.
_DIRECTORY: Final = EntryKind.DIRECTORY
_FILE: Final = EntryKind.FILE
_SYMLINK: Final = EntryKind.SYMLINK
_FLUSH_BYTES: Final = 1 << 20
_NOT_WHOLE: Final = layout.HOLE


def write_image(
    tree: Tree,
    extents: Mapping[bytes, Sequence[Extent]],
    device_blocks: int,
    out: BinaryIO,
    *,
    uuid: bytes,
) -> None:
    """Write the image of `tree` to `out` from its present position on, without seeking.

    `extents` gives the place of each file's data on a device of `device_blocks` blocks of 4 KiB, by
    path, the first path for hard links; what no extent covers is a hole. `uuid` is 16 bytes.

    Raises InvalidInputError for what the format cannot hold (limits: docs/formats/erofs.md),
    ValueError for extents that are not sorted, not aligned or outside of file or device. What was
    written until then is not an image.
    """
    if device_blocks > layout.MAX_DEVICE_BLOCKS:
        raise InvalidInputError(
            f"a layer with {device_blocks} blocks of data is too large",
            hint="a layer holds less than 16 TiB of file contents; split it into several",
        )
    if len(uuid) != 16:
        raise ValueError("a uuid has 16 bytes")
    inodes = _Inodes(tree, extents, device_blocks)
    end_of_inodes, block_count = inodes.place()
    sink = _Sink(out)
    sink.put(0, _head(inodes, end_of_inodes + block_count, device_blocks, uuid))
    next_block = end_of_inodes
    nids, whole = inodes.nids, inodes.whole
    for number, entry in inodes:
        if whole[number] != _NOT_WHOLE:
            sink.put(nids[number] * SLOT_SIZE, inodes.encode_whole(number, entry))
            continue
        body = inodes.body(number, entry)
        sink.put(nids[number] * SLOT_SIZE, inodes.encode(number, entry, body, next_block))
        next_block += len(body.blocks) // BLOCK_SIZE
    position = end_of_inodes * BLOCK_SIZE
    for number in inodes.with_blocks:
        blocks = inodes.body(number, inodes.entries[number]).blocks
        sink.put(position, blocks)
        position += len(blocks)
    sink.put(position, b"")
    sink.flush()


class _Sink:
    """Puts pieces at rising positions, zeros between them, in large writes."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._buffer = bytearray()
        self._flushed = 0

    def put(self, position: int, data: bytes) -> None:
        buffer = self._buffer
        if gap := position - self._flushed - len(buffer):
            buffer += bytes(gap)
        buffer += data
        if len(buffer) >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        self._out.write(self._buffer)
        self._flushed += len(self._buffer)
        self._buffer = bytearray()


class _Inodes:
    """The inodes of a tree; iterates over (number, entry) of their first names, in path order.

    The number of an entry is its index in the tree. `nids` are inode numbers, zero until placed;
    `whole` then has the `whole_block` of each file that has one, and _NOT_WHOLE for all others.
    """

    def __init__(
        self, tree: Tree, extents: Mapping[bytes, Sequence[Extent]], device_blocks: int
    ) -> None:
        self.entries = list(stored_entries(tree))
        self.nids = array("Q", bytes(8 * len(self.entries)))
        self.whole = array("I", [_NOT_WHOLE]) * len(self.entries)
        self.with_blocks: list[int] = []
        self._extents = extents
        self._device_blocks = device_blocks
        self._links = Counter(entry.link_group for entry in self.entries)
        self._first_names: dict[int, int] = {}
        self._directories: dict[bytes, int] = {}
        self._children: dict[int, array[int]] = {}
        self._subdirectories: Counter[int] = Counter()
        for number, entry in enumerate(self.entries):
            self._file_under_parent(number, entry)

    def __len__(self) -> int:
        return self._links[0] + len(self._first_names)

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        first_names = self._first_names
        for number, entry in enumerate(self.entries):
            if not entry.link_group or first_names[entry.link_group] == number:
                yield number, entry

    def _file_under_parent(self, number: int, entry: Entry) -> None:
        path = entry.path
        if len(path) > layout.MAX_PATH_BYTES:
            raise InvalidInputError(
                f"a path is longer than {layout.MAX_PATH_BYTES} bytes: {path[:80]!r}..."
            )
        parent = self._directories[path.rpartition(b"/")[0]] if path else number
        if path:
            self._children[parent].append(number)
        if entry.kind is _DIRECTORY:
            self._subdirectories[parent] += bool(path)
            self._directories[path] = number
            self._children[number] = array("I")
        elif entry.link_group:
            self._first_names.setdefault(entry.link_group, number)

    def place(self) -> tuple[int, int]:
        """Number the inodes; returns the first block behind them and how many blocks follow."""
        position = BLOCK_SIZE
        block_count = 0
        for number, entry in self:
            behind, blocks, in_one_block = self._shape(number, entry)
            size = INODE.size + behind
            if in_one_block and position % BLOCK_SIZE + size > BLOCK_SIZE:
                position = round_up(position, BLOCK_SIZE)
            self.nids[number] = position // SLOT_SIZE
            position = round_up(position + size, SLOT_SIZE)
            if blocks:
                self.with_blocks.append(number)
                block_count += blocks
        if self._first_names:
            for number, entry in enumerate(self.entries):
                if entry.link_group:
                    self.nids[number] = self.nids[self._first_names[entry.link_group]]
        return round_up(position, BLOCK_SIZE) // BLOCK_SIZE, block_count

    def _shape(self, number: int, entry: Entry) -> tuple[int, int, bool]:
        """The bytes behind an inode, its blocks elsewhere, and whether it has an inline tail.

        The kernel wants such a tail in one block; we keep it there with its inode.
        """
        kind, path = entry.kind, entry.path
        if kind is _FILE:
            block = whole_block(entry, self._extents.get(path, ()), self._device_blocks)
            if block is not None:
                self.whole[number] = block
                return INDEX.size, 0, False
        elif kind is _DIRECTORY:
            start = len(path) + 1 if path else 0
            entries = self.entries
            names = [entries[child].path[start:] for child in self._children[number]]
            return directory_shape(entry, names)
        body = self.body(number, entry)
        blocks = len(body.blocks) // BLOCK_SIZE
        return len(body.behind), blocks, body.data_layout == layout.LAYOUT_INLINE

    def body(self, number: int, entry: Entry) -> Body:
        """The data of an inode, as far as numbers are known."""
        kind = entry.kind
        if kind is _FILE:
            return file_body(entry, self._extents.get(entry.path, ()), self._device_blocks)
        if kind is _DIRECTORY:
            parent = self._directories[entry.path.rpartition(b"/")[0]]
            return directory_body(entry, self._rows(number), self.nids[number], self.nids[parent])
        if kind is _SYMLINK:
            return symlink_body(entry)
        return device_body(entry)

    def _rows(self, number: int) -> list[tuple[bytes, int, int]]:
        path = self.entries[number].path
        start = len(path) + 1 if path else 0
        entries, nids, types = self.entries, self.nids, layout.DIRENT_TYPES
        return [
            (entries[child].path[start:], nids[child], types[entries[child].kind])
            for child in self._children[number]
        ]

    def encode(self, number: int, entry: Entry, body: Body, next_block: int) -> bytes:
        """The inode and all that follows it; its blocks, if it has any, begin at `next_block`."""
        value = next_block if body.blocks else body.value
        units, size = body.xattr_units, body.size
        return self._inode(number, entry, body.data_layout, units, size, value) + body.behind

    def encode_whole(self, number: int, entry: Entry) -> bytes:
        """The same of a file that lies on the device in one piece."""
        value = layout.CHUNK_INDEXES | (entry.size - 1 >> BLOCK_BITS).bit_length()
        inode = self._inode(number, entry, layout.LAYOUT_CHUNKED, 0, entry.size, value)
        return inode + INDEX.pack(0, layout.DEVICE_ID, self.whole[number])

    def _inode(
        self, number: int, entry: Entry, data_layout: int, xattr_units: int, size: int, value: int
    ) -> bytes:
        uid, gid = entry.uid, entry.gid
        if uid == layout.NO_ID or gid == layout.NO_ID:
            raise InvalidInputError(f"the owner or group of {entry.path!r} is no valid id")
        seconds, nanoseconds = divmod(entry.mtime_ns, 10**9)
        try:
            return INODE.pack(
                layout.INODE_EXTENDED | data_layout << 1,
                xattr_units,
                layout.MODE_TYPES[entry.kind] | entry.mode,
                0,
                size,
                value,
                number + 1,
                uid,
                gid,
                seconds,
                nanoseconds,
                self._link_count(number, entry),
            )
        except struct.error as error:
            raise InvalidInputError(
                f"mode, owner, size or time of {entry.path!r} is out of range"
            ) from error

    def _link_count(self, number: int, entry: Entry) -> int:
        if entry.kind is _DIRECTORY:
            return 2 + self._subdirectories[number]
        return self._links[entry.link_group] if entry.link_group else 1


def _head(inodes: _Inodes, blocks: int, device_blocks: int, uuid: bytes) -> bytes:
    """Block 0: the superblock and the device table."""
    superblock = layout.SUPER.pack(
        layout.SUPER_MAGIC,
        0,
        layout.FEATURE_CHECKSUM | layout.FEATURE_MTIME,
        layout.BLOCK_BITS,
        0,
        inodes.nids[0],
        len(inodes),
        0,
        0,
        blocks,
        0,
        0,
        uuid,
        b"",
        layout.FEATURE_CHUNKED | layout.FEATURE_DEVICES,
        0,
        1,
        layout.DEVICE_SLOT,
    )
    block = bytearray(BLOCK_SIZE)
    block[layout.SUPER_OFFSET : layout.SUPER_OFFSET + len(superblock)] = superblock
    layout.DEVICE.pack_into(
        block, layout.DEVICE_SLOT * layout.DEVICE_SLOT_SIZE, b"", device_blocks, 0
    )
    checksum = layout.super_checksum(bytes(block))
    block[layout.SUPER_OFFSET + 4 : layout.SUPER_OFFSET + 8] = checksum.to_bytes(4, "little")
    return bytes(block)
