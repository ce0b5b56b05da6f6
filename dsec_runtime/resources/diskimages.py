"""Images of ext4 file systems: formatted once a size, copied with their holes, held still."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.linux import process
from dsec_layers.linux import syscalls as layer_syscalls
from dsec_runtime.linux import loop, syscalls

_FORMAT: Final = (
    *("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal,^resize_inode"),
    *("-E", "lazy_itable_init=1,nodiscard,root_owner=0:0"),
)
_OPTIONS: Final = (("noinit_itable", None), ("discard", None), ("nobarrier", None))
_FIFREEZE: Final = 0xC0045877
_FITHAW: Final = 0xC0045878
_COPY_BYTES: Final = 1 << 30
_FILL_BYTES: Final = 1 << 20


class Templates:
    """Formatted images by size, in one folder. Raises OSError and DsecError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for aside in folder.glob("*.aside"):
            aside.unlink(missing_ok=True)

    def open(self, size_bytes: int) -> int:
        """A descriptor of the image of this size, made when it is missing."""
        path = self._folder / f"{size_bytes}.img"
        if not path.exists():
            self._make(path, size_bytes)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _make(self, path: Path, size_bytes: int) -> None:
        aside = path.with_name(f"{secrets.token_hex(8)}.aside")
        try:
            with aside.open("xb") as file:
                file.truncate(size_bytes)
            process.run([*_FORMAT, aside])
            _furnish(aside)
            aside.rename(path)
        finally:
            aside.unlink(missing_ok=True)


def mounted(device: str) -> int:
    """A mount of the file system on `device`, attached nowhere."""
    return layer_syscalls.detached_mount(
        "ext4", [("source", device), *_OPTIONS], syscalls.MOUNT_ATTR_NODEV
    )


def warm(top: int) -> None:
    """Read what the first files of the file system need, so that whoever mounts it does not wait.

    `top` is a descriptor of its root.
    """
    for folder in ("upper", "work"):
        os.stat(folder, dir_fd=top)
        made = f"{folder}/warm"
        os.mkdir(made, dir_fd=top)
        os.close(os.open(f"{made}/file", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, dir_fd=top))
        os.unlink(f"{made}/file", dir_fd=top)
        os.rmdir(made, dir_fd=top)


def _furnish(image: Path) -> None:
    """Put the folders of an overlay into a new file system."""
    fd = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        with loop.attached(fd) as device:
            top = mounted(device)
        try:
            for name in ("upper", "work"):
                os.mkdir(name, mode=0o755, dir_fd=top)
            os.rmdir("lost+found", dir_fd=top)
        finally:
            os.close(top)
    finally:
        os.close(fd)


def copy_data(source: int, target: int) -> None:
    """Copy a sparse file, holes as holes. Where both lie on one file system, it may share them."""
    os.truncate(target, os.fstat(source).st_size)
    for start, end in _data(source):
        _copy_range(source, target, start, end)


def fill(device: str, source: int) -> None:
    """Write what the sparse file `source` holds, which is little, to a device that is all zeros.

    It stays in the device's cache for whoever mounts it. In the file behind the device it would
    have to reach the disk of that file before the device, which reads past the cache, can read it.
    """
    fd = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for start, end in _data(source):
            for at in range(start, end, _FILL_BYTES):
                content = os.pread(source, min(_FILL_BYTES, end - at), at)
                if os.pwrite(fd, content, at) != len(content):
                    raise OSError(errno.EIO, "the device is smaller than the image", device)
    finally:
        os.close(fd)


def _data(source: int) -> Iterator[tuple[int, int]]:
    """Where a sparse file has data: starts and ends."""
    at, size = 0, os.fstat(source).st_size
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        at = os.lseek(source, start, os.SEEK_HOLE)
        yield start, at


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        count = min(_COPY_BYTES, end - start)
        done = os.copy_file_range(source, target, count, start, start)
        if done == 0:
            raise OSError(errno.EIO, "the image became shorter while it was copied")
        start += done


@contextlib.contextmanager
def still(place: Path) -> Iterator[None]:
    """Hold a mounted file system still, all of it written, for the length of a block.

    When this process is killed in it, it stays so until `go_on`.
    """
    with _opened(place) as fd:
        fcntl.ioctl(fd, _FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(fd, _FITHAW, 0)


def go_on(place: Path) -> None:
    """Let a file system that was held still be written to. Raises OSError."""
    with _opened(place) as fd:
        try:
            fcntl.ioctl(fd, _FITHAW, 0)
        except OSError as error:
            if error.errno != errno.EINVAL:  # it does go on
                raise


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[int]:
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
