"""Images mounted by the kernel for a block of code, and what system calls show of entries."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from dsec_layers.linux.mount import mount_erofs, mount_overlay, unmount
from dsec_layers.model.escaping import stored_entries
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import Image
from tests.support.trees import Contents, data_runs

_KINDS = {
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFLNK: EntryKind.SYMLINK,
    stat.S_IFCHR: EntryKind.CHAR,
    stat.S_IFBLK: EntryKind.BLOCK,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
}


@dataclass(frozen=True)
class Mounts:
    """Makes mounts below `folder`, which lies on a disk file system; each ends with its block."""

    folder: Path

    @contextlib.contextmanager
    def image(self, image: Image) -> Iterator[Path]:
        """The image on a mount point, beside its device, the plain file `device`."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            metadata, device, target = (Path(name, part) for part in ("image", "device", "mount"))
            metadata.write_bytes(image.metadata)
            device.write_bytes(image.device)
            target.mkdir()
            mount_erofs(metadata, target, device=device)
            try:
                yield target
            finally:
                unmount(target)

    @contextlib.contextmanager
    def overlay(self, *lowers: Path) -> Iterator[Path]:
        """A read-only overlay of these, the topmost first, over an empty directory."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            target, empty = Path(name, "mount"), Path(name, "empty")
            target.mkdir()
            empty.mkdir()
            mount_overlay(target, [*lowers, empty])
            try:
                yield target
            finally:
                unmount(target)


def read_entry(root: Path, path: bytes, link_group: int = 0) -> Entry:
    """The entry at `path` below `root` as it is shown there, without digest; the group is given."""
    full = below(root, path)
    status = os.lstat(full)
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    names = sorted(map(os.fsencode, os.listxattr(full, follow_symlinks=False)))
    return Entry(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        xattrs=tuple((name, os.getxattr(full, name, follow_symlinks=False)) for name in names),
        size=status.st_size if kind is EntryKind.FILE else 0,
        target=os.readlink(full) if kind is EntryKind.SYMLINK else b"",
        major=os.major(status.st_rdev),
        minor=os.minor(status.st_rdev),
        link_group=link_group,
    )


def read_runs(path: bytes) -> list[tuple[int, int]]:
    """The runs of data that SEEK_DATA and SEEK_HOLE show."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        runs, end, size = [], 0, os.fstat(descriptor).st_size
        while end < size:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            runs.append((start, end - start))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    finally:
        os.close(descriptor)
    return runs


def check_mounted_image(root: Path, tree: Tree, contents: Contents) -> None:
    """Assert that the image of `tree` mounted at `root` is its stored form in every field."""
    for entry, stored in zip(tree, stored_entries(tree), strict=True):
        shown = read_entry(root, entry.path, entry.link_group)
        assert shown == replace(stored, digest=b"")
        if entry.kind is EntryKind.FILE:
            with open(below(root, entry.path), "rb") as file:
                assert file.read() == contents[entry.path]
            assert read_runs(below(root, entry.path)) == data_runs(contents[entry.path])
    _check_listings(root, tree)
    _check_hard_links(root, tree)


def below(root: Path, path: bytes) -> bytes:
    """The path of an entry below `root`."""
    return os.fsencode(root) + (b"/" + path if path else b"")


def _check_listings(root: Path, tree: Tree) -> None:
    children: dict[bytes, list[Entry]] = defaultdict(list)
    for entry in tree.entries[1:]:
        children[entry.parent].append(entry)
    for entry in tree:
        if entry.kind is EntryKind.DIRECTORY:
            inside = children[entry.path]
            listed = sorted(os.listdir(below(root, entry.path)))
            assert listed == [child.name for child in inside]
            subdirectories = sum(child.kind is EntryKind.DIRECTORY for child in inside)
            assert os.lstat(below(root, entry.path)).st_nlink == 2 + subdirectories


def _check_hard_links(root: Path, tree: Tree) -> None:
    """One inode for each group, with as many links as names, and none shared with others."""
    sizes = Counter(entry.link_group for entry in tree)
    inodes = set()
    for entry in tree:
        status = os.lstat(below(root, entry.path))
        inodes.add((entry.link_group or entry.path, status.st_ino))
        if entry.kind is not EntryKind.DIRECTORY:
            assert status.st_nlink == (sizes[entry.link_group] if entry.link_group else 1)
    assert len({inode for _, inode in inodes}) == len(inodes)
    assert len({group for group, _ in inodes}) == len(inodes)
