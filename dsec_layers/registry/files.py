"""Files of a directory store: published whole, read through a cache of open handles."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import DsecError, NoSpaceError, StoreError

TEMPORARY_PREFIX: Final = "tmp-"
PIECE_BYTES: Final = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_CANNOT_SYNC = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.ENOSYS,
)  # FUSE file systems without fsync for directories


def explain(error: OSError, doing: str) -> DsecError:
    """The error of this project for an OSError met while `doing`: NoSpaceError or StoreError."""
    text = f"{doing}: {error.strerror or error}"
    if error.errno in _NO_SPACE:
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


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


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


class Handle:
    """An open file: its descriptor and its size in bytes when it was opened."""

    __slots__ = ("dropped", "fd", "size", "users")

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size
        self.users = 1
        self.dropped = False

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`, fewer only at the end of the file. Raises OSError."""
        data = os.pread(self.fd, length, offset)
        if len(data) in (0, length):
            return data
        return data + self.read(
            offset + len(data), length - len(data)
        )  # one call moves at most 2 GiB


class HandleCache:
    """Recently used files stay open, as an open costs a round trip on a cluster. Thread-safe."""

    def __init__(self, limit: int = 128) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, Handle] = OrderedDict()

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[Handle]:
        """The handle of `path`; it is not closed while the block runs. Raises OSError."""
        handle = self._take(path)
        try:
            yield handle
        finally:
            with self._lock:
                handle.users -= 1
                self._close_if_unused(handle)

    def drop(self, path: str) -> None:
        """Forget `path`, so that its next reader opens it anew."""
        with self._lock:
            if handle := self._handles.pop(path, None):
                self._release(handle)

    def close(self) -> None:
        """Forget all."""
        with self._lock:
            while self._handles:
                self._release(self._handles.popitem()[1])

    def __del__(self) -> None:
        self.close()

    def _take(self, path: str) -> Handle:
        with self._lock:
            if known := self._handles.get(path):
                self._handles.move_to_end(path)
                known.users += 1
                return known
        handle = Handle(path)
        with self._lock:
            if other := self._handles.get(path):  # another thread opened it meanwhile
                os.close(handle.fd)
                other.users += 1
                return other
            self._handles[path] = handle
            while len(self._handles) > self._limit:
                self._release(self._handles.popitem(last=False)[1])
        return handle

    def _release(self, handle: Handle) -> None:
        handle.dropped = True
        self._close_if_unused(handle)

    @staticmethod
    def _close_if_unused(handle: Handle) -> None:
        if handle.dropped and not handle.users:
            os.close(handle.fd)
