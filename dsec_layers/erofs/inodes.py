"""Inodes and chunk indexes, decoded and checked."""

from __future__ import annotations

import msgspec

from dsec_layers.erofs import layout
from dsec_layers.erofs.layout import BLOCK_BITS, BLOCK_SIZE, INODE, SLOT_SIZE
from dsec_layers.erofs.planning import MAX_CHUNK_BITS, MAX_CHUNKS, Extent, chunk_count
from dsec_layers.erofs.xattrs import body_size
from dsec_layers.errors import CorruptError
from dsec_layers.model.tree import EntryKind


class Inode(msgspec.Struct, frozen=True, gc=False):
    """An inode as it is stored, so that `kind` is that of the stored form (see model.escaping).

    `value` is the data field: the first block of a directory or link target, the chunk format of a
    file, the number of a device.
    """

    nid: int
    kind: EntryKind
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int
    links: int
    xattr_bytes: int
    data_layout: int
    value: int

    @property
    def data_offset(self) -> int:
        """The image offset of what follows the xattrs."""
        return self.nid * SLOT_SIZE + INODE.size + self.xattr_bytes


def decode_inode(nid: int, data: bytes) -> Inode:
    """The inode `nid` from its 64 bytes. Raises CorruptError."""
    (
        i_format, xattr_units, mode, _, size, value, _, uid, gid, seconds, nanoseconds, links
    ) = INODE.unpack(data)  # fmt: skip
    kind = layout.KINDS_BY_MODE.get(mode & 0o170000)
    data_layout = i_format >> 1
    if kind is None or not i_format & layout.INODE_EXTENDED or not _fits(kind, size, data_layout):
        raise CorruptError(f"inode {nid} of the EROFS image is malformed")
    mtime_ns = seconds * 10**9 + nanoseconds
    if nanoseconds >= 10**9 or not -(1 << 63) <= mtime_ns < 1 << 63:
        raise CorruptError(f"inode {nid} of the EROFS image has an impossible time")
    return Inode(
        nid=nid,
        kind=kind,
        mode=mode & 0o7777,
        uid=uid,
        gid=gid,
        mtime_ns=mtime_ns,
        size=size,
        links=links,
        xattr_bytes=body_size(xattr_units),
        data_layout=data_layout,
        value=value,
    )


def decode_chunk_bits(inode: Inode) -> int:
    """Log2 of the blocks in a chunk of a file that is not empty. Raises CorruptError."""
    bits = inode.value ^ layout.CHUNK_INDEXES
    if bits > MAX_CHUNK_BITS or chunk_count(inode.size, bits) > MAX_CHUNKS:
        raise CorruptError(f"inode {inode.nid} of the EROFS image has a bad chunk format")
    return bits


def decode_extents(inode: Inode, index: bytes, device_blocks: int) -> list[Extent]:
    """The extents of a file from its whole chunk index. Raises CorruptError."""
    unit = BLOCK_SIZE << decode_chunk_bits(inode)
    extents: list[Extent] = []
    for number, (_, device, block) in enumerate(layout.INDEX.iter_unpack(index)):
        if block == layout.HOLE:
            continue
        start = number * unit
        length = min(unit, inode.size - start)
        if device != layout.DEVICE_ID or block - (-length >> BLOCK_BITS) > device_blocks:
            raise CorruptError(f"inode {inode.nid} of the EROFS image leaves its device")
        _append(extents, Extent(start, block << BLOCK_BITS, length))
    return extents


def _fits(kind: EntryKind, size: int, data_layout: int) -> bool:
    if kind is EntryKind.DIRECTORY or kind is EntryKind.SYMLINK:
        return data_layout in (layout.LAYOUT_PLAIN, layout.LAYOUT_INLINE)
    if kind is EntryKind.FILE and size:
        return data_layout == layout.LAYOUT_CHUNKED and size <= layout.MAX_FILE_BYTES
    return data_layout == layout.LAYOUT_PLAIN and size == 0


def _append(extents: list[Extent], extent: Extent) -> None:
    if extents:
        last = extents[-1]
        if (
            last.file_offset + last.length == extent.file_offset
            and last.device_offset + last.length == extent.device_offset
        ):
            extent = Extent(last.file_offset, last.device_offset, last.length + extent.length)
            extents.pop()
    extents.append(extent)
