"""Writing a tree into a root file system, as COPY does: nothing is ever written outside of it.

Directories merge with what is there, also through links; whatever else is in the way of what is
copied is replaced, as the Dockerfile reference has it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.modes import Mode, apply_mode
from dsec_layers.errors import BusyError, InvalidInputError
from dsec_layers.linux import cancelling, inroot
from dsec_layers.model.content import Content, Source, Spooled
from dsec_layers.model.tree import ROOT, Entry, EntryKind

NODES: Final = {
    EntryKind.CHAR: stat.S_IFCHR,
    EntryKind.BLOCK: stat.S_IFBLK,
    EntryKind.FIFO: stat.S_IFIFO,
    EntryKind.SOCKET: stat.S_IFSOCK,
}
_DIRECTORY_MODE: Final = 0o755
_PIECE_BYTES: Final = 1 << 24
# How an overlay shows, and takes, a 0:0 device, which it does not let anybody make.
_NULL_DEVICE_MARK: Final = "trusted.overlay.whiteout"


class Attributes(msgspec.Struct, frozen=True):
    """What a copy sets: owner (uid, gid), permission bits, time in ns; None keeps the source's."""

    owner: tuple[int, int] | None = None
    mode: Mode | None = None
    mtime_ns: int | None = None


def make_directories(root: Path, path: str, owner: tuple[int, int] | None = None) -> Path:
    """The directory `path` inside `root`; what is missing is made with mode 0755.

    Returns its place on this machine. Raises InvalidInputError when something else is in the way.
    """
    inside = inroot.resolve(root, path)
    place = root
    for part in inside.split("/")[1:]:
        place = place / part
        try:
            place.mkdir()
        except FileExistsError:
            if not place.is_dir():
                raise InvalidInputError(f"{path} is not a directory in the layer") from None
            continue
        place.chmod(_DIRECTORY_MODE)
        if owner is not None:
            os.chown(place, *owner)
    return place


def place_tree(root: Path, path: str, source: Source, attributes: Attributes) -> None:
    """Put the content of a directory into the directory `path` of `root`.

    The directory itself gets the source's attributes only when it did not exist and the source has
    some: an archive may not name its own root. Raises InvalidInputError when `path` is no
    directory, BusyError when a file changes while it is copied, OSError.
    """
    existed = inroot.locate(root, path).is_dir()
    top = make_directories(root, path, attributes.owner)
    with_top = not existed and source.tree.entries[0] != ROOT
    _Placer(root, attributes).place(source, top, with_top=with_top)


def place_file(
    root: Path, folder: str, name: str | None, source: Source, attributes: Attributes
) -> None:
    """Put the one file of `source` into the directory `folder` of `root`, as `name` if given.

    Errors are those of `place_tree`.
    """
    (entry,) = source.tree.entries[1:]
    place = make_directories(root, folder, attributes.owner) / (name or os.fsdecode(entry.name))
    _Placer(root, attributes).put(entry, place, source.contents.get(entry.path))


class _Placer:
    """One copy. `links` are the places of files with several names, by link group."""

    def __init__(self, root: Path, attributes: Attributes) -> None:
        self.root = root
        self.attributes = attributes
        self.links: dict[int, Path] = {}

    def place(self, source: Source, top: Path, *, with_top: bool) -> None:
        """Place all entries; directories get their attributes last, the deepest first."""
        folders = {b"": top}
        made: list[Entry] = [source.tree.entries[0]] if with_top else []
        for entry in source.tree.entries[1:]:
            place = folders[entry.parent] / os.fsdecode(entry.name)
            if entry.kind is EntryKind.DIRECTORY:
                folders[entry.path] = self._directory(place)
                made.append(entry)
            else:
                self.put(entry, place, source.contents.get(entry.path))
        for entry in reversed(made):
            set_attributes(folders[entry.path], entry, self.attributes)

    def put(self, entry: Entry, place: Path, content: Content | None) -> None:
        """Place anything but a directory."""
        cancelling.check()
        _clear(place)
        first = self.links.get(entry.link_group) if entry.link_group else None
        if first is not None:
            os.link(first, place, follow_symlinks=False)
            return
        if entry.link_group:
            self.links[entry.link_group] = place
        if entry.kind is EntryKind.SYMLINK:
            place.symlink_to(os.fsdecode(entry.target))
        elif content is not None:
            _copy_content(content, entry, place)
        elif _is_null_device(entry):
            place.touch()
            os.setxattr(place, _NULL_DEVICE_MARK, b"y")
        else:
            os.mknod(place, NODES[entry.kind], os.makedev(entry.major, entry.minor))
        set_attributes(place, entry, self.attributes)

    def _directory(self, place: Path) -> Path:
        try:
            place.mkdir()
        except FileExistsError:
            inside = "/" + str(place.relative_to(self.root))
            target = inroot.locate(self.root, inside)
            if target.is_dir():
                return target
            if place.is_symlink():  # it leads to nothing
                return make_directories(self.root, inside)
            place.unlink()
            place.mkdir()
        return place


def set_attributes(place: Path, entry: Entry, wanted: Attributes) -> None:
    """Give what is at `place` the attributes of `entry`, but for those that are wanted otherwise.

    Owner first: a change of owner takes capabilities and set-id bits away. Raises OSError.
    """
    os.chown(place, *(wanted.owner or (entry.uid, entry.gid)), follow_symlinks=False)
    if entry.kind is not EntryKind.SYMLINK:
        is_directory = entry.kind is EntryKind.DIRECTORY
        mode = entry.mode if wanted.mode is None else wanted.mode
        place.chmod(apply_mode(mode, entry.mode, is_directory=is_directory))
    for name, value in entry.xattrs:
        os.setxattr(place, name, value, follow_symlinks=False)
    time_ns = entry.mtime_ns if wanted.mtime_ns is None else wanted.mtime_ns
    os.utime(place, ns=(time_ns, time_ns), follow_symlinks=False)


def _is_null_device(entry: Entry) -> bool:
    return entry.kind is EntryKind.CHAR and entry.major == 0 and entry.minor == 0


def _clear(place: Path) -> None:
    """Make room for something that is not a directory."""
    try:
        place.unlink()
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        shutil.rmtree(place)


def _copy_content(content: Content, entry: Entry, place: Path) -> None:
    """Copy data and leave holes out."""
    with contextlib.ExitStack() as stack:
        source = os.open(content.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        stack.callback(os.close, source)
        target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, target)
        runs = content.runs if isinstance(content, Spooled) else _data(source, entry.size)
        for start, length, offset in runs:
            os.lseek(target, start, os.SEEK_SET)
            _copy_run(source, offset, length, target)
        os.ftruncate(target, entry.size)
        if isinstance(content, Spooled):
            return
        after = os.fstat(source)
        if (after.st_size, after.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise BusyError(
                f"{os.fsdecode(content.path)} changed while it was copied",
                hint="stop what writes there, then build again",
            )


def _copy_run(source: int, offset: int, length: int, target: int) -> None:
    end = offset + length
    while offset < end:
        cancelling.check()
        count = os.sendfile(target, source, offset, min(end - offset, _PIECE_BYTES))
        if count == 0:
            break
        offset += count


def _data(fd: int, size: int) -> Iterator[tuple[int, int, int]]:
    """The parts of an open file that are not holes, as the runs of a spooled content."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        yield start, end - start, start
