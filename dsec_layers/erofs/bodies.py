"""The data of an inode, for each kind of entry: the bytes behind it and the blocks elsewhere."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Final

import msgspec

from dsec_layers.erofs import layout
from dsec_layers.erofs.directories import Row, cut, encode_block
from dsec_layers.erofs.layout import BLOCK_BITS, BLOCK_SIZE, INDEX, INODE
from dsec_layers.erofs.planning import (
    MAX_CHUNK_BITS,
    MAX_CHUNKS,
    Extent,
    chunk_bits,
    chunk_count,
    join,
)
from dsec_layers.erofs.xattrs import body_units, encode_xattrs
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.tree import Entry

_HOLE_INDEX: Final = INDEX.pack(0, 0, layout.HOLE)


class Body(msgspec.Struct, frozen=True, gc=False):
    """The data of an inode.

    `behind` follows the inode: xattrs, then the chunk index or the inline tail. `blocks` lie
    elsewhere; the first of them then stands in the data field of the inode instead of `value`.
    """

    behind: bytes = b""
    xattr_units: int = 0
    data_layout: int = layout.LAYOUT_PLAIN
    size: int = 0
    value: int = 0
    blocks: bytes = b""


def whole_block(entry: Entry, extents: Sequence[Extent], device_blocks: int) -> int | None:
    """The first block of a file that has no xattrs and lies on the device in one piece.

    Nearly all do, and their inodes can be made at once, without a `Body`. None of any other file.
    """
    if len(extents) != 1 or entry.xattrs or not entry.size:
        return None
    extent = extents[0]
    place, length = extent.device_offset, extent.length
    blocks = entry.size + BLOCK_SIZE - 1 >> BLOCK_BITS
    is_whole = (
        extent.file_offset == 0
        and (length == entry.size or length == blocks << BLOCK_BITS)
        and not place & (BLOCK_SIZE - 1)
        and (place >> BLOCK_BITS) + blocks <= device_blocks
        and blocks <= 1 << MAX_CHUNK_BITS
    )
    return place >> BLOCK_BITS if is_whole else None


def file_body(entry: Entry, extents: Sequence[Extent], device_blocks: int) -> Body:
    """A file in chunks on the device; an empty file has none. Raises ValueError for bad extents."""
    xattrs = encode_xattrs(entry.xattrs, entry.path) if entry.xattrs else b""
    units = body_units(len(xattrs))
    if not entry.size:
        return Body(xattrs, units)
    if entry.size > layout.MAX_FILE_BYTES:
        raise InvalidInputError(f"{entry.path!r} is larger than {layout.MAX_FILE_BYTES} bytes")
    joined, edges = join(entry.size, extents)
    for extent in joined:
        if extent.device_offset + extent.length > device_blocks << BLOCK_BITS:
            raise ValueError(f"{entry.path!r} lies outside of its device")
    bits = chunk_bits(entry.size, edges)
    if chunk_count(entry.size, bits) > MAX_CHUNKS:
        raise ValueError(f"the chunk index of {entry.path!r} is too long: widen its runs")
    padding = bytes(-len(xattrs) % INDEX.size)
    behind = xattrs + padding + _encode_index(entry.size, bits, joined)
    return Body(behind, units, layout.LAYOUT_CHUNKED, entry.size, layout.CHUNK_INDEXES | bits)


def symlink_body(entry: Entry) -> Body:
    """A link target. Raises InvalidInputError for one that the kernel could not give back."""
    target = entry.target
    if not target or len(target) > layout.MAX_TARGET_BYTES or b"\0" in target:
        raise InvalidInputError(
            f"the symlink {entry.path!r} has no valid target",
            hint=f"a target has 1 to {layout.MAX_TARGET_BYTES} bytes, none of them zero",
        )
    xattrs = encode_xattrs(entry.xattrs, entry.path) if entry.xattrs else b""
    units = body_units(len(xattrs))
    if not _is_inline(len(xattrs), len(target)):
        return Body(xattrs, units, layout.LAYOUT_PLAIN, len(target), 0, _padded(target))
    return Body(xattrs + target, units, layout.LAYOUT_INLINE, len(target))


def device_body(entry: Entry) -> Body:
    """A device, fifo or socket. Raises InvalidInputError for a device number that does not fit."""
    xattrs = encode_xattrs(entry.xattrs, entry.path) if entry.xattrs else b""
    try:
        number = layout.encode_device_number(entry.major, entry.minor)
    except ValueError as error:
        raise InvalidInputError(f"{entry.path!r}: {error}") from None
    return Body(xattrs, body_units(len(xattrs)), value=number)


def directory_body(entry: Entry, children: list[Row], nid: int, parent: int) -> Body:
    """A directory; `children` are sorted by name, and `.` and `..` are put among them."""
    xattrs = encode_xattrs(entry.xattrs, entry.path) if entry.xattrs else b""
    units = body_units(len(xattrs))
    rows = children
    insort(rows, (b".", nid, layout.DIRENT_TYPES[1]))
    insort(rows, (b"..", parent, layout.DIRENT_TYPES[1]))
    cuts, used = cut([row[0] for row in rows])
    encoded = [encode_block(rows[start:end]) for start, end in cuts]
    size = (len(cuts) - 1) * BLOCK_SIZE + used
    tail = b""
    data_layout = layout.LAYOUT_PLAIN
    if _is_inline(len(xattrs), used):
        data_layout, tail = layout.LAYOUT_INLINE, encoded.pop()
    blocks = b"".join([_padded(block) for block in encoded])
    return Body(xattrs + tail, units, data_layout, size, 0, blocks)


def directory_shape(entry: Entry, names: list[bytes]) -> tuple[int, int, bool]:
    """What will follow the inode of a directory, in bytes, and elsewhere, in blocks.

    `names` are those of its children, sorted. The third tells whether the first is an inline tail.
    """
    xattrs = len(encode_xattrs(entry.xattrs, entry.path)) if entry.xattrs else 0
    insort(names, b".")
    insort(names, b"..")
    cuts, used = cut(names)
    if _is_inline(xattrs, used):
        return xattrs + used, len(cuts) - 1, True
    return xattrs, len(cuts), False


def _is_inline(xattr_bytes: int, tail_bytes: int) -> bool:
    return INODE.size + xattr_bytes + tail_bytes <= BLOCK_SIZE


def _encode_index(size: int, bits: int, extents: list[Extent]) -> bytes:
    count = chunk_count(size, bits)
    unit_bits = BLOCK_BITS + bits
    parts, chunk = [], 0
    for extent in extents:
        first = extent.file_offset >> unit_bits
        end = first + chunk_count(extent.length, bits)
        block = extent.device_offset >> BLOCK_BITS
        parts.append(_HOLE_INDEX * (first - chunk))
        parts += [
            INDEX.pack(0, layout.DEVICE_ID, block + (number << bits))
            for number in range(end - first)
        ]
        chunk = end
    parts.append(_HOLE_INDEX * (count - chunk))
    return b"".join(parts)


def _padded(block: bytes) -> bytes:
    return block + bytes(-len(block) % BLOCK_SIZE)
