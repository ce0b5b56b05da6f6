"""Trees, packs and chunk tables as docs/formats/tree.md, pack.md and chunk-table.md describe them.

Part of the reader of a stranger, see `stranger`. It imports nothing from the package.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import zstandard
from blake3 import blake3

BLOCK = 4096
Runs = list[tuple[int, bytes]]
"""The maximal data runs of a file: offset and bytes; all else is zeros."""


class Refused(Exception):
    """What was read is not what the pages describe."""


def check(condition: bool, what: str) -> None:
    if not condition:
        raise Refused(what)


# --- tree.md ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """One path of a tree, with every field that the tree digest covers."""

    path: bytes
    kind: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    link_group: int = 0
    opaque: bool = False
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    size: int = 0
    digest: bytes = b""
    target: bytes = b""
    major: int = 0
    minor: int = 0


DIRECTORY, FILE, SYMLINK, CHAR, BLOCK_DEVICE, FIFO, SOCKET, WHITEOUT = range(1, 9)


def encode_item(item: Item) -> bytes:
    fixed = (item.kind, item.mode, item.uid, item.gid, item.mtime_ns, item.link_group, item.opaque)
    data = struct.pack("<IBHIIqIBI", len(item.path), *fixed, len(item.xattrs)) + item.path
    if item.kind == FILE:
        data += struct.pack("<Q", item.size) + item.digest
    elif item.kind == SYMLINK:
        data += struct.pack("<I", len(item.target)) + item.target
    elif item.kind in (CHAR, BLOCK_DEVICE):
        data += struct.pack("<II", item.major, item.minor)
    for pair in item.xattrs:
        data += b"".join(struct.pack("<I", len(part)) + part for part in pair)
    return data


def tree_digest(items: Iterable[Item]) -> str:
    return "blake3:" + blake3(b"DSECTREE\1" + b"".join(map(encode_item, items))).hexdigest()


def content_digest(size: int, runs: Runs) -> bytes:
    if sum(len(data) for _, data in runs) == size:
        return blake3(b"".join(data for _, data in runs)).digest()
    hasher = blake3(derive_key_context="dsec 2026-11 sparse file content v1")
    hasher.update(struct.pack("<QQ", size, len(runs)))
    for offset, data in runs:
        hasher.update(struct.pack("<QQ", offset, len(data)))
    for _, data in runs:
        hasher.update(data)
    return hasher.digest()


def compose(lower: list[Item], upper: list[Item]) -> list[Item]:
    """The whole tree of a layer over the whole tree of what lies below it (environment.md)."""
    found = {item.path: item for item in lower}
    beyond = 1 + max(item.link_group for item in lower)
    for item in upper:
        if item.kind != DIRECTORY or item.opaque:
            below = item.path + b"/" if item.path else b""
            found = {path: each for path, each in found.items() if not path.startswith(below)}
            found.pop(item.path, None)
        if item.kind != WHITEOUT:
            group = item.link_group and item.link_group + beyond
            found[item.path] = replace(item, opaque=False, link_group=group)
    items = [found[path] for path in sorted(found)]
    counts = Counter(item.link_group for item in items)
    numbers = {0: 0} | {group: 0 for group, count in counts.items() if count == 1}
    for item in items:
        numbers.setdefault(item.link_group, 1 + max(numbers.values()))
    return [replace(item, link_group=numbers[item.link_group]) for item in items]


# --- pack.md, chunk-table.md -----------------------------------------------------------------


def open_chunk(stored: bytes, length: int, digest: bytes) -> bytes:
    plain = stored
    if len(stored) != length:
        plain = unzstd(stored, length)
    check(len(plain) == length and blake3(plain).digest() == digest, "a damaged chunk")
    return plain


def unzstd(stored: bytes, size: int) -> bytes:
    """The content of the one frame in `stored`, which must state that it has `size` bytes."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        check(zstandard.frame_content_size(stored) == size, "a frame of another size")
        plain = decompressor.decompress(stored)
    except zstandard.ZstdError as error:
        raise Refused("not a frame") from error
    check(decompressor.eof and not decompressor.unused_data, "not exactly one frame")
    return plain


def walk_pack(pack: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(digest, plain bytes) of every chunk of a pack, by the index at its end."""
    check(pack[:12] == b"DSECPACK" + struct.pack("<I", 1), "not a pack")
    index_digest, start, count, magic = struct.unpack("<32sQI8s", pack[-52:])
    index = pack[start:-52]
    check(magic == b"DSECPEND" and start + 40 * count + 52 == len(pack), "no index")
    check(blake3(index).digest() == index_digest, "a damaged index")
    at = 12
    for stored, length, digest in struct.iter_unpack("<II32s", index):
        check(1 <= stored <= length <= 4 << 20, "lengths out of bounds")
        yield digest, open_chunk(pack[at : at + stored], length, digest)
        at += stored
    check(at == start, "chunks and index do not meet")


@dataclass(frozen=True)
class Record:
    device_offset: int
    pack_offset: int
    length: int
    stored: int
    pack: int
    digest: bytes


@dataclass(frozen=True)
class Table:
    packs: list[tuple[str, int]]
    device_bytes: int
    records: list[Record]


def read_table(data: bytes) -> Table:
    magic, version, pack_count, count, device_bytes = struct.unpack_from("<8sIIQQ", data)
    check((magic, version) == (b"DSECTBL\n", 1), "not a chunk table")
    middle = 32 + 40 * pack_count
    check(len(data) == middle + 60 * count, "a table of another length")
    packs = [(f"sha256:{d.hex()}", n) for d, n in struct.iter_unpack("<32sQ", data[32:middle])]
    records = [Record(*fields) for fields in struct.iter_unpack("<QQIII32s", data[middle:])]
    at = 0
    for record in records:
        check(record.device_offset == at, "a gap in the table")
        check(1 <= record.stored <= record.length <= 4 << 20, "lengths out of bounds")
        check(record.pack < pack_count, "no such pack")
        check(record.pack_offset + record.stored <= packs[record.pack][1], "behind its pack")
        at += record.length
    check(at == device_bytes, "a table that ends too early")
    return Table(packs, device_bytes, records)
