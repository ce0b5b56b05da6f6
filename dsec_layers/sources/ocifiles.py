"""The named files of an OCI layout: in a directory, or in place inside a tar archive."""

from __future__ import annotations

import io
import posixpath
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from dsec_layers.errors import InvalidInputError, NotFoundError
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
