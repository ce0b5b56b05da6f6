"""Reads the images that `writer` makes, and no others: the unexpected is a CorruptError."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, Self

from dsec_layers.erofs import layout
from dsec_layers.erofs.census import Census
from dsec_layers.erofs.directories import decode_block
from dsec_layers.erofs.inodes import Inode, decode_chunk_bits, decode_extents, decode_inode
from dsec_layers.erofs.layout import BLOCK_SIZE, INODE, SLOT_SIZE, round_up
from dsec_layers.erofs.planning import Extent, chunk_count
from dsec_layers.erofs.xattrs import decode_xattrs
from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.escaping import (
    ESCAPED_PREFIX,
    OPAQUE_XATTR,
    ORIGIN_XATTR,
    OVERLAY_PREFIX,
    from_stored,
)
from dsec_layers.model.tree import Entry, EntryKind

_DOTS: Final = (b".", b"..")
_KINDS_BY_DIRENT: Final = {
    number: EntryKind(kind) for kind, number in enumerate(layout.DIRENT_TYPES) if number
}
_Pending = tuple[bytes, int, int, bool]  # path, inode, inode of the parent, whether to go inside

_DIRECTORY_XATTRS: Final = ((OPAQUE_XATTR, b"y"), (ORIGIN_XATTR, b""))


def device_blocks(block: bytes, size_bytes: int) -> int:
    """How many blocks of its device the image of `size_bytes` that begins with `block` points into.

    For an image whose content was checked otherwise: the checksum of the superblock, which takes
    longer than all else here, is not looked at. Raises CorruptError.
    """
    _super_fields(block, size_bytes)
    return _device_blocks(block)


def _super_fields(block: bytes, size_bytes: int) -> tuple[Any, ...]:
    if len(block) < BLOCK_SIZE:
        raise CorruptError("the EROFS image is too short")
    fields = layout.SUPER.unpack_from(block, layout.SUPER_OFFSET)
    if fields[0] != layout.SUPER_MAGIC:
        raise CorruptError("not an EROFS image, or its superblock is damaged")
    expected = {
        2: layout.FEATURE_CHECKSUM | layout.FEATURE_MTIME,
        3: layout.BLOCK_BITS,
        10: 0,
        14: layout.FEATURE_CHUNKED | layout.FEATURE_DEVICES,
        16: 1,
        17: layout.DEVICE_SLOT,
    }
    if any(fields[position] != value for position, value in expected.items()):
        raise CorruptError("the EROFS image is not one of a layer")
    if fields[9] * BLOCK_SIZE != size_bytes:
        raise CorruptError("the EROFS image has been cut or has grown")
    return fields


def _device_blocks(block: bytes) -> int:
    blocks: int = layout.DEVICE.unpack_from(block, layout.DEVICE_SLOT * layout.DEVICE_SLOT_SIZE)[1]
    return blocks


class ErofsImage:
    """An image in memory or in an mmap.

    Paths are as in trees: relative, and the root is `b""`. Entries are those of the tree, with
    empty digests: the stored form is undone. All methods raise CorruptError when the bytes that
    they meet are not those of an image, and those that take a path raise NotFoundError.
    """

    def __init__(self, buffer: bytes | memoryview | mmap.mmap) -> None:
        self._view = memoryview(buffer)
        block = bytes(self._view[:BLOCK_SIZE])
        fields = _super_fields(block, len(self._view))
        if fields[1] != layout.super_checksum(block):
            raise CorruptError("the superblock of the EROFS image is damaged")
        self.root_nid: int = fields[5]
        self.inode_count: int = fields[6]
        self.uuid: bytes = fields[12]
        self.device_blocks = _device_blocks(block)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the buffer, so that an mmap can be closed."""
        self._view.release()

    def walk(self) -> Iterator[Entry]:
        """All entries in the order of a tree, hard links in groups numbered by first appearance."""
        return (entry for entry, _ in self.walk_inodes())

    def walk_inodes(self) -> Iterator[tuple[Entry, Inode]]:
        """`walk` with the inode of each entry."""
        census = Census(len(self._view))
        pending = [(b"", self.root_nid, self.root_nid, True)]
        root = self.inode(self.root_nid)
        yield self._entry(b"", root, 0), root
        while pending:
            path, nid, parent, expand = pending.pop()
            inode = self.inode(nid)
            if expand:
                census.add_directory(inode)
                pending += self._walk_below(path, inode, parent)
            else:
                yield self._entry(path, inode, census.link_group(inode)), inode
        census.check(self.inode_count)

    def inode(self, nid: int) -> Inode:
        """The inode with number `nid`."""
        return decode_inode(nid, self._bytes(nid * SLOT_SIZE, INODE.size))

    def lookup(self, path: bytes) -> Inode:
        """The inode at `path`; symlinks are not followed. Raises NotFoundError."""
        inode = self.inode(self.root_nid)
        for name in path.split(b"/") if path else ():
            child = self.child(inode, name)
            if child is None:
                raise NotFoundError(f"no such path in the layer: {path!r}")
            inode = child
        return inode

    def child(self, inode: Inode, name: bytes) -> Inode | None:
        """The inode of `name` in the directory `inode`, None when it is not there."""
        nid = self._find(inode, name) if inode.kind is EntryKind.DIRECTORY else None
        return None if nid is None else self.inode(nid)

    def stat(self, path: bytes) -> Entry:
        """The entry at `path`, with link group 0 whether it has other names or not."""
        return self._entry(path, self.lookup(path), 0)

    def readlink(self, path: bytes) -> bytes:
        """The target of the symlink at `path`. NotFoundError when it is none."""
        inode = self.lookup(path)
        if inode.kind is not EntryKind.SYMLINK:
            raise NotFoundError(f"not a symlink: {path!r}")
        return self._target(inode)

    def xattrs(self, path: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """The content xattrs at `path`, sorted by name."""
        return self.stat(path).xattrs

    def extents(self, path: bytes) -> list[Extent]:
        """Where the data of the file at `path` lies on the device; between extents are holes.

        Raises NotFoundError when it is no file.
        """
        inode = self.lookup(path)
        if inode.kind is not EntryKind.FILE:
            raise NotFoundError(f"not a file: {path!r}")
        return self.inode_extents(inode)

    def inode_extents(self, inode: Inode) -> list[Extent]:
        """`extents` of the inode of a file."""
        if not inode.size:
            return []
        length = chunk_count(inode.size, decode_chunk_bits(inode)) * layout.INDEX.size
        index = self._bytes(round_up(inode.data_offset, layout.INDEX.size), length)
        return decode_extents(inode, index, self.device_blocks)

    def read_directory(self, inode: Inode) -> list[tuple[bytes, int, EntryKind]]:
        """The children of a directory as (name, inode number, stored kind), sorted by name."""
        rows = [
            (name, nid, _kind(file_type))
            for block in range(self._block_count(inode))
            for name, nid, file_type in decode_block(self._block(inode, block))
        ]
        if any(one[0] >= other[0] for one, other in pairwise(rows)):
            raise CorruptError("a directory of the EROFS image is not sorted")
        return [row for row in rows if row[0] not in _DOTS]

    def _walk_below(self, path: bytes, inode: Inode, parent: int) -> list[_Pending]:
        """What to walk below a directory, last first: its children, and the insides of directories.

        In path order the inside of `a` comes where a name `a/` would.
        """
        if (
            self._find(inode, b".", dots=True) != inode.nid
            or self._find(inode, b"..", dots=True) != parent
        ):
            raise CorruptError(f"a directory of the EROFS image is not where it says: {path!r}")
        prefix = path + b"/" if path else b""
        pending: list[tuple[bytes, _Pending]] = []
        subdirectories = 0
        for name, nid, kind in self.read_directory(inode):
            child = prefix + name
            if len(child) > layout.MAX_PATH_BYTES or self.inode(nid).kind is not kind:
                raise CorruptError(f"the EROFS image has a bad type or name at {child[:80]!r}")
            pending.append((name, (child, nid, inode.nid, False)))
            if kind is EntryKind.DIRECTORY:
                subdirectories += 1
                pending.append((name + b"/", (child, nid, inode.nid, True)))
        if inode.links != 2 + subdirectories:
            raise CorruptError(f"a directory of the EROFS image has a bad link count: {path!r}")
        pending.sort(reverse=True)
        return [item for _, item in pending]

    def _find(self, inode: Inode, name: bytes, *, dots: bool = False) -> int | None:
        if not name or (name in _DOTS and not dots):
            return None
        blocks = range(self._block_count(inode))
        number = bisect_right(blocks, name, key=lambda block: self._first_name(inode, block)) - 1
        if number < 0:
            return None
        rows = decode_block(self._block(inode, number))
        return next((nid for found, nid, _ in rows if found == name), None)

    def _first_name(self, inode: Inode, block: int) -> bytes:
        return next(decode_block(self._block(inode, block)))[0]

    def _entry(self, path: bytes, inode: Inode, link_group: int) -> Entry:
        kind = inode.kind
        device = kind is EntryKind.CHAR or kind is EntryKind.BLOCK
        major, minor = layout.decode_device_number(inode.value) if device else (0, 0)
        entry = Entry(
            path=path,
            kind=kind,
            mode=inode.mode,
            uid=inode.uid,
            gid=inode.gid,
            mtime_ns=inode.mtime_ns,
            xattrs=self._xattrs(inode) if inode.xattr_bytes else (),
            size=inode.size if kind is EntryKind.FILE else 0,
            target=self._target(inode) if kind is EntryKind.SYMLINK else b"",
            major=major,
            minor=minor,
            link_group=link_group,
        )
        return from_stored(entry) if device or inode.xattr_bytes else entry

    def _xattrs(self, inode: Inode) -> tuple[tuple[bytes, bytes], ...]:
        xattrs = decode_xattrs(self._bytes(inode.nid * SLOT_SIZE + INODE.size, inode.xattr_bytes))
        for name, value in xattrs:
            internal = name.startswith(OVERLAY_PREFIX) and not name.startswith(ESCAPED_PREFIX)
            ours = inode.kind is EntryKind.DIRECTORY and (name, value) in _DIRECTORY_XATTRS
            if internal and not ours:
                raise CorruptError(
                    f"the EROFS image has an xattr that changes its meaning: {name!r}"
                )
        return xattrs

    def _target(self, inode: Inode) -> bytes:
        if not 0 < inode.size <= layout.MAX_TARGET_BYTES:
            raise CorruptError(f"inode {inode.nid} of the EROFS image has a target of a bad length")
        target = self._block(inode, 0)
        if b"\0" in target:
            raise CorruptError(f"inode {inode.nid} of the EROFS image has a bad target")
        return target

    def _block_count(self, inode: Inode) -> int:
        if inode.size > len(self._view):
            raise CorruptError(f"inode {inode.nid} of the EROFS image is larger than the image")
        return -(-inode.size // BLOCK_SIZE)

    def _block(self, inode: Inode, number: int) -> bytes:
        """Block `number` of a directory or link target; the last ends with its data."""
        length = min(BLOCK_SIZE, inode.size - number * BLOCK_SIZE)
        if inode.data_layout == layout.LAYOUT_PLAIN or number < self._block_count(inode) - 1:
            return self._bytes((inode.value + number) * BLOCK_SIZE, length)
        if inode.data_offset % BLOCK_SIZE + length > BLOCK_SIZE:
            raise CorruptError(f"inode {inode.nid} of the EROFS image has a tail in two blocks")
        return self._bytes(inode.data_offset, length)

    def _bytes(self, offset: int, length: int) -> bytes:
        if offset + length > len(self._view):
            raise CorruptError("the EROFS image points behind its end")
        return bytes(self._view[offset : offset + length])


def _kind(file_type: int) -> EntryKind:
    kind = _KINDS_BY_DIRENT.get(file_type)
    if kind is None:
        raise CorruptError(
            f"a directory of the EROFS image has an entry of unknown type {file_type}"
        )
    return kind
