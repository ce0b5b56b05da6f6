"""The named files of an OCI layout: in a directory, in a tar archive, or in one that was read."""

from __future__ import annotations

import io
import os
import posixpath
import shutil
import tempfile
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.content import Source, Spooled
from dsec_layers.model.tree import EntryKind
from dsec_layers.sources.compression import is_compressed, plain
from dsec_layers.sources.tar import TarReader
from dsec_layers.sources.tarmember import MemberKind

_MAX_LINKS: Final = 40


class Files(Protocol):
    """Files by their name in a layout."""

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises NotFoundError."""
        ...


class DirectoryFiles:
    """A layout directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self._root / _inside(name)).is_file()

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises NotFoundError."""
        try:
            return (self._root / _inside(name)).open("rb")
        except FileNotFoundError as error:
            raise NotFoundError(f"{self._root} has no {name}") from error


class ArchiveFiles:
    """A layout inside an uncompressed tar archive on disk, read in place."""

    def __init__(self, path: Path, *, name: str) -> None:
        self._path = path
        self._name = name
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        with path.open("rb") as file:
            reader = TarReader(file, name=name)
            for member in reader:
                self._index(member.name, member.kind, member.link, reader.offset, member.size)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return self._followed(name) in self._places

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises NotFoundError."""
        place = self._places.get(self._followed(name))
        if place is None:
            raise NotFoundError(f"{self._name} has no {name}")
        return io.BufferedReader(_Part(self._path, *place), 1 << 18)

    def _index(self, name: bytes, kind: MemberKind, link: bytes, offset: int, size: int) -> None:
        path = posixpath.normpath(name.decode(errors="replace")).lstrip("/")
        target = link.decode(errors="replace")
        if kind is MemberKind.FILE:
            self._places[path] = (offset, size)
        elif kind is MemberKind.LINK:
            self._links[path] = posixpath.normpath(target).lstrip("/")
        elif kind is MemberKind.SYMLINK:  # an older docker save links layers that are the same
            self._links[path] = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))

    def _followed(self, name: str) -> str:
        path = _inside(name)
        for _ in range(_MAX_LINKS):
            if path not in self._links:
                break
            path = self._links[path]
        return path


class SourceFiles:
    """A layout inside a tree that was read already."""

    def __init__(self, source: Source) -> None:
        self._entries = source.tree.by_path()
        self._contents = {
            path: content
            for path, content in source.contents.items()
            if isinstance(content, Spooled)
        }

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return self._followed(name) in self._contents

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises NotFoundError."""
        path = self._followed(name)
        if path not in self._contents:
            raise NotFoundError(f"the archive has no {name}")
        raw = _Content(self._contents[path], self._entries[path].size)
        return io.BufferedReader(raw, 1 << 18)

    def _followed(self, name: str) -> bytes:
        path = os.fsencode(_inside(name))
        for _ in range(_MAX_LINKS):
            entry = self._entries.get(path)
            if entry is None or entry.kind is not EntryKind.SYMLINK:
                break
            target = posixpath.join(posixpath.dirname(path), entry.target)
            path = posixpath.normpath(target).lstrip(b"/")
        return path


class _Content(io.RawIOBase):
    """A spooled content as a file."""

    def __init__(self, content: Spooled, size: int) -> None:
        self._fd = os.open(content.path, os.O_RDONLY | os.O_CLOEXEC)
        self._runs = deque(content.runs)
        self._position = 0
        self._size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        position, end = self._position, self._size
        while self._runs and sum(self._runs[0][:2]) <= position:
            self._runs.popleft()
        start, length, place = self._runs[0] if self._runs else (end, 0, 0)
        if position < start:
            got = min(len(buffer), start - position)
            buffer[:got] = bytes(got)
        else:
            part = buffer[: start + length - position]
            got = os.preadv(self._fd, [part], place + position - start) if part else 0
        self._position += got
        return got

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


class _Part(io.RawIOBase):
    """A range of a file as a file of its own."""

    def __init__(self, path: Path, offset: int, size: int) -> None:
        self._file = path.open("rb", buffering=0)
        self._file.seek(offset)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        got = self._file.readinto(buffer[: self._left])
        self._left -= got
        return got

    def close(self) -> None:
        self._file.close()
        super().close()


def open_files(path: Path, spool_dir: Path) -> Files:
    """The files of a layout directory or archive; a compressed archive is unpacked to `spool_dir`.

    Raises NotFoundError, InvalidInputError or CorruptError.
    """
    if path.is_dir():
        return DirectoryFiles(path)
    try:
        with path.open("rb") as file:
            if not is_compressed(file.read(6)):
                return ArchiveFiles(path, name=str(path))
            file.seek(0)
            spool_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=spool_dir, prefix="image-", delete=False) as copy:
                shutil.copyfileobj(plain(file, name=str(path)), copy, 1 << 18)
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file or directory: {path}") from error
    return ArchiveFiles(Path(copy.name), name=str(path))


def _inside(name: str) -> str:
    """The normal form of a name. Raises InvalidInputError when it leads out of the layout."""
    path = posixpath.normpath(name)
    if path.startswith(("/", "..")):
        raise InvalidInputError(f"the image refers to a file outside of itself: {name!r}")
    return path
