"""The named files of an image, written to a layout directory or one after another into a tar.

Both forms come into being aside, in a folder that is gone afterwards, and get their name when all
is there.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from dsec_layers.errors import ConflictError, InvalidInputError, NotFoundError
from dsec_layers.exporting.tarheader import BLOCK, file_header, padding
from dsec_layers.linux import claim

_ASIDE: Final = ".dsec-export-"
_INDEX: Final = "index.json"


class Files(Protocol):
    """Takes one file after another; its name is known when its bytes are written."""

    def write(self, data: bytes, /) -> object:
        """The next bytes of the file."""
        ...

    def name(self, name: str) -> None:
        """The file ends; one that is there already is dropped."""
        ...


@contextlib.contextmanager
def new_archive(path: Path) -> Iterator[Files]:
    """A tar that takes the place of `path` when the block ends well.

    Raises InvalidInputError when that is no plain file, NotFoundError without its folder, OSError.
    """
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{path} is no file", hint="name a new file for the archive")
    with _aside(path.parent) as folder:
        with (folder / "archive").open("wb") as file:
            yield _Archive(file)
            file.write(bytes(BLOCK))  # with the header that is not needed, the end mark
        (folder / "archive").replace(path)


@contextlib.contextmanager
def new_layout(path: Path, merged: Callable[[bytes, bytes], bytes]) -> Iterator[Files]:
    """The files of a layout that is at `path` when the block ends well.

    When there is one already, files are added to it, and at last the index that `merged` makes of
    its own and the new one. Raises ConflictError when other things are there, NotFoundError without
    the folder above, OSError.
    """
    is_new = not path.exists()
    if not is_new and not _takes_files(path):
        raise ConflictError(f"{path} is there and is no OCI layout", hint="name a new directory")
    with _aside(path.parent if is_new else path) as folder:
        with contextlib.closing(_Layout(folder / "layout")) as files:
            yield files
        if is_new:
            (folder / "layout").rename(path)
        else:
            with claim.locked(path, fcntl.LOCK_EX):
                _add(folder / "layout", path, merged)


class _Layout:
    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir()
        self._file = self._next()

    def write(self, data: bytes, /) -> object:
        return self._file.write(data)

    def name(self, name: str) -> None:
        self._file.close()
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(self._file.name).replace(path)
        self._file = self._next()

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def _next(self) -> BinaryIO:
        return (self._root.parent / "file").open("wb")


class _Archive:
    """A header is written when the size behind it is known."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._names: set[str] = set()
        self._start = 0
        file.write(bytes(BLOCK))

    def write(self, data: bytes, /) -> object:
        return self._file.write(data)

    def name(self, name: str) -> None:
        end = self._file.tell()
        size = end - self._start - BLOCK
        self._file.seek(self._start)
        if name in self._names:
            self._file.truncate()
        else:
            self._names.add(name)
            self._file.write(file_header(name.encode(), size))
            self._file.seek(end)
            self._start = end + self._file.write(padding(size))
        self._file.write(bytes(BLOCK))


@contextlib.contextmanager
def _aside(parent: Path) -> Iterator[Path]:
    if not parent.is_dir():
        raise NotFoundError(f"there is no directory {parent}", hint="make it first")
    claim.sweep(parent, f"{_ASIDE}*")
    with claim.new_folder(parent, _ASIDE) as folder:
        yield folder


def _takes_files(path: Path) -> bool:
    """Whether this is a layout or an empty directory."""
    return path.is_dir() and ((path / _INDEX).is_file() or not any(path.iterdir()))


def _add(new: Path, layout: Path, merged: Callable[[bytes, bytes], bytes]) -> None:
    """Move files to their places; what was added goes again when something fails on the way."""
    index = new / _INDEX
    if (layout / _INDEX).is_file():
        index.write_bytes(merged((layout / _INDEX).read_bytes(), index.read_bytes()))
    with contextlib.ExitStack() as stack:
        for path in sorted(path for path in new.rglob("*") if path.is_file() and path != index):
            target = layout / path.relative_to(new)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                stack.callback(target.unlink, missing_ok=True)
                path.rename(target)
        stack.pop_all()
    index.replace(layout / _INDEX)
