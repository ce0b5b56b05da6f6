"""Files of a directory store are written aside, made durable, and published whole."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import DISK_FULL, DsecError, NoSpaceError, StoreError

TEMPORARY_PREFIX: Final = "tmp-"
PIECE_BYTES: Final = 1 << 20
# A large write gets large pages, which a virtual machine may have to get from its host first: 1 GB
# in writes of 1 MiB took 1.6 s of CPU in one, in these 0.22 s. On others they cost nothing.
LOCAL_WRITE_BYTES: Final = 64 << 10
EARLY_BYTES: Final = 8 << 20
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_CANNOT_SYNC = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.ENOSYS,
)  # FUSE file systems without fsync for directories


def explain(error: OSError, doing: str) -> DsecError:
    """The error of this project for an OSError met while `doing`: NoSpaceError or StoreError."""
    text = f"{doing}: {error.strerror or error}"
    if error.errno in DISK_FULL:
        return NoSpaceError(
            text,
            hint="free some space, or set the store elsewhere; what was begun has been removed",
        )
    if error.errno in _READ_ONLY:
        return StoreError(
            text,
            hint="this user may not do that here: check the owner, the mode and the mount options",
        )
    return StoreError(text)


@contextlib.contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn an OSError of the block into NoSpaceError or StoreError that says what was done."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing) from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, where its file system can."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(fd)


def make_directory(path: Path, root: Path) -> None:
    """Make `path` and its missing parents durably; `root` itself must exist."""
    if path == root:
        return
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError:
        if path.parent == root:
            raise
        make_directory(path.parent, root)
        path.mkdir(exist_ok=True)
    sync_directory(path.parent)


@contextlib.contextmanager
def aside(directory: Path, root: Path) -> Iterator[tuple[int, Path]]:
    """A temporary file in `directory` (made when missing), open for writing, gone afterwards.

    It lies beside the file that it shall become, so that publishing it is a rename within one
    directory and the file has the striping that a cluster file system gives to files of that
    directory.
    """
    path = directory / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o444)
    except FileNotFoundError:
        make_directory(directory, root)
        fd = os.open(path, flags, 0o444)
    try:
        yield fd, path
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)


def write_all(
    fd: int, data: bytes | bytearray | memoryview, at_once_bytes: int | None = None
) -> None:
    """Write all of `data`, at most so much of it at once. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:at_once_bytes]) :]


class EarlyWriter:
    """Writes to a new file of a local disk, whose writing begins before the file is synced.

    Else all of it would wait until then, and the last files for one another.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._written = self._begun = 0

    def write(self, data: bytes | bytearray) -> None:
        """Append all of `data`. Raises OSError."""
        write_all(self._fd, data, LOCAL_WRITE_BYTES)
        self._written += len(data)
        if self._written - self._begun >= EARLY_BYTES:
            from dsec_layers.linux import syscalls  # few commands write large files

            with contextlib.suppress(OSError):  # not every file system can
                syscalls.begin_writing(self._fd, self._begun, self._written - self._begun)
            self._begun = self._written


def link_if_absent(path: Path, target: Path) -> bool:
    """Give the file at `path` the name `target` too, unless that name is taken (False)."""
    try:
        os.link(path, target)
    except FileExistsError:
        return False
    return True


def read_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces of 1 MiB. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
