"""Counts what a walk through an image meets, so that loops, doubles and bombs end it."""

from __future__ import annotations

from dsec_layers.erofs.inodes import Inode
from dsec_layers.errors import CorruptError
from dsec_layers.model.tree import EntryKind


class Census:
    """The inodes of one walk."""

    def __init__(self, image_bytes: int) -> None:
        self._directory_bytes_left = image_bytes
        self._directories: set[int] = set()
        self._links_left: dict[int, int] = {}
        self._groups: dict[int, int] = {}

    def add_directory(self, inode: Inode) -> None:
        """Raises CorruptError for a second visit, or when directories claim too many bytes."""
        self._directory_bytes_left -= inode.size
        if inode.nid in self._directories or self._directory_bytes_left < 0:
            raise CorruptError("directories of the EROFS image overlap or form a loop")
        self._directories.add(inode.nid)

    def link_group(self, inode: Inode) -> int:
        """The link group of one more name of `inode`. Raises CorruptError when it has too many."""
        if inode.kind is EntryKind.DIRECTORY:
            return 0
        left = self._links_left.get(inode.nid, inode.links)
        if left == 0:
            raise CorruptError(f"inode {inode.nid} of the EROFS image has more names than links")
        self._links_left[inode.nid] = left - 1
        return self._groups.setdefault(inode.nid, len(self._groups) + 1) if inode.links > 1 else 0

    def check(self, inode_count: int) -> None:
        """Raises CorruptError when inodes or names are missing at the end."""
        found = len(self._directories) + len(self._links_left)
        if found != inode_count or any(self._links_left.values()):
            raise CorruptError("names or inodes of the EROFS image are missing")
