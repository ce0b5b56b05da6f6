"""A composed tree as a file system has it: numbered nodes, names in directories, link counts.

There is no kernel here and no file data: whoever serves it asks. Nodes are numbered in the order of
their paths, so a mount made anew gives every file the inode number it had; names of one hard link
are one node. What a file system refuses is an OSError with the number that the caller is to get.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from dsec_layers.linux.fusenodes import NodeAttributes
from dsec_layers.model.tree import Entry, EntryKind

ROOT: Final = 1
_KEPT_LISTINGS: Final = 64

_TYPE_BITS: Final = {
    EntryKind.DIRECTORY: stat.S_IFDIR,
    EntryKind.FILE: stat.S_IFREG,
    EntryKind.SYMLINK: stat.S_IFLNK,
    EntryKind.CHAR: stat.S_IFCHR,
    EntryKind.BLOCK: stat.S_IFBLK,
    EntryKind.FIFO: stat.S_IFIFO,
    EntryKind.SOCKET: stat.S_IFSOCK,
}
_FOR_ROOT_ONLY: Final = b"trusted."  # the kernel hides these from everybody else


class Node(msgspec.Struct):
    """An inode: its first entry, the number of the layer that gives it, its names, its parent.

    `names` are those of a directory's children, with their nodes; in the order of their bytes.
    """

    number: int
    layer: int
    entry: Entry
    links: int
    parent: int
    names: dict[bytes, int] = {}

    @property
    def mode(self) -> int:
        """The permission and type bits."""
        return self.entry.mode | _TYPE_BITS[self.entry.kind]

    @property
    def size(self) -> int:
        """What stat shows."""
        if self.entry.kind is EntryKind.SYMLINK:
            return len(self.entry.target)
        return self.entry.size


class TreeNodes:
    """The nodes of the `entries` of a whole tree, in path order with the numbers of their layers.

    It does not change, and is safe for many threads. `privileged` lists trusted xattrs too.
    """

    def __init__(self, entries: Iterable[tuple[int, Entry]], *, privileged: bool = False) -> None:
        self._hidden = () if privileged else (_FOR_ROOT_ONLY,)
        self._nodes: list[Node] = []
        # A large directory is read by many requests, one after the other.
        self._listing = lru_cache(_KEPT_LISTINGS)(self._list)
        self.file_bytes = 0
        self.has_xattrs = False
        directories: dict[bytes, Node] = {}
        groups: dict[int, Node] = {}
        for layer, entry in entries:
            parent = directories.get(entry.parent) if entry.path else None
            node = groups.get(entry.link_group)
            if node is None:
                node = self._add(layer, entry, parent.number if parent else ROOT)
                if entry.link_group:
                    groups[entry.link_group] = node
            else:
                node.links += 1
            if entry.kind is EntryKind.DIRECTORY:
                directories[entry.path] = node
            if parent is not None:
                parent.names[entry.name] = node.number
                parent.links += entry.kind is EntryKind.DIRECTORY

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, number: int) -> Node:
        """The node with this number. Raises OSError ESTALE."""
        if not ROOT <= number <= len(self._nodes):
            raise OSError(errno.ESTALE, f"no node {number}")
        return self._nodes[number - ROOT]

    def child(self, directory: int, name: bytes) -> Node | None:
        """What `name` is in a directory, None when it is not there. Raises OSError ENOTDIR."""
        number = self._directory(directory).names.get(name)
        return None if number is None else self._nodes[number - ROOT]

    def listing(self, directory: int) -> Sequence[tuple[bytes, int, int]]:
        """Names, nodes and type bits of a directory, `.` and `..` first. Raises OSError ENOTDIR."""
        return self._listing(directory)

    def attributes(self, number: int) -> NodeAttributes:
        """What stat shows of a node; all times are the one that layers keep. Raises OSError."""
        node = self.node(number)
        entry = node.entry
        return NodeAttributes(
            node=number,
            mode=node.mode,
            links=node.links,
            uid=entry.uid,
            gid=entry.gid,
            size=node.size,
            mtime_ns=entry.mtime_ns,
            major=entry.major,
            minor=entry.minor,
        )

    def target(self, number: int) -> bytes:
        """Where a symlink leads. Raises OSError EINVAL for another node."""
        entry = self.node(number).entry
        if entry.kind is not EntryKind.SYMLINK:
            raise OSError(errno.EINVAL, "not a symlink")
        return entry.target

    def xattr_names(self, number: int) -> list[bytes]:
        """The names of the extended attributes of a node. Raises OSError."""
        names = [name for name, _ in self.node(number).entry.xattrs]
        return [name for name in names if not name.startswith(self._hidden)]

    def xattr(self, number: int, wanted: bytes) -> bytes:
        """The value of an extended attribute. Raises OSError ENODATA when there is none."""
        for name, value in self.node(number).entry.xattrs:
            if name == wanted:
                return value
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    def file(self, number: int) -> Node:
        """The node of a regular file. Raises OSError EISDIR or EINVAL."""
        node = self.node(number)
        if node.entry.kind is EntryKind.DIRECTORY:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if node.entry.kind is not EntryKind.FILE:
            raise OSError(errno.EINVAL, "not a regular file")
        return node

    def _add(self, layer: int, entry: Entry, parent: int) -> Node:
        links = 2 if entry.kind is EntryKind.DIRECTORY else 1
        node = Node(len(self._nodes) + ROOT, layer, entry, links, parent)
        self._nodes.append(node)
        self.file_bytes += entry.size
        self.has_xattrs = self.has_xattrs or bool(entry.xattrs)
        return node

    def _list(self, directory: int) -> Sequence[tuple[bytes, int, int]]:
        node = self._directory(directory)
        rows = [(b".", node.number, stat.S_IFDIR), (b"..", node.parent, stat.S_IFDIR)]
        for name, number in node.names.items():
            rows.append((name, number, self._nodes[number - ROOT].mode))
        return rows

    def _directory(self, number: int) -> Node:
        node = self.node(number)
        if node.entry.kind is not EntryKind.DIRECTORY:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return node
