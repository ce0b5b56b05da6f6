"""System calls that Python lacks, named and typed as in their man pages.

Each raises OSError with the file name.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)

# The same numbers on x86_64 and aarch64.
SYS_MOVE_MOUNT = 429
SYS_FSOPEN = 430
SYS_FSCONFIG = 431
SYS_FSMOUNT = 432

FSOPEN_CLOEXEC = 1
FSMOUNT_CLOEXEC = 1
FSCONFIG_SET_FLAG = 0
FSCONFIG_SET_STRING = 1
FSCONFIG_CMD_CREATE = 6
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY = 1

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
AT_FDCWD = -100
_SYNC_FILE_RANGE_WRITE = 2
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1


def _check(result: int, name: str, *paths: str) -> int:
    if result >= 0:
        return result
    number = ctypes.get_errno()
    text = os.strerror(number)
    if number == errno.ENOSYS:
        text += f" (this kernel has no {name})"
    raise OSError(number, f"{name}: {text}", *(paths[:1] or ()))


def mount(
    source: str, target: str, filesystem: str | None, flags: int = 0, data: str | None = None
) -> None:
    """mount(2)."""
    fs = filesystem.encode() if filesystem else None
    options = data.encode() if data else None
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), fs, ctypes.c_ulong(flags), options
    )
    _check(result, "mount", target)


def umount2(target: str, flags: int = UMOUNT_NOFOLLOW) -> None:
    """umount2(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), "umount2", target)


def syncfs(fd: int) -> None:
    """syncfs(2): write the file system that holds the open file `fd` to its disk."""
    _check(_libc.syncfs(fd), "syncfs")


def begin_writing(fd: int, offset: int, length: int) -> None:
    """sync_file_range(2), SYNC_FILE_RANGE_WRITE: begin to write these bytes to the disk.

    Does nothing where there is no such call.
    """
    call = getattr(_libc, "sync_file_range", None)
    if call is not None:
        span = ctypes.c_int64(offset), ctypes.c_int64(length)
        _check(call(fd, *span, _SYNC_FILE_RANGE_WRITE), "sync_file_range")


def one_heap(spare_bytes: int = 16 << 20) -> None:
    """mallopt(3): all threads take their memory from one place, which keeps `spare_bytes` of it.

    Else the C library gives each a place of its own, and a process of many threads keeps in each
    most of what it ever held there; and it gives large buffers back to the kernel, which clears
    each page of the next one anew. Does nothing where there is no mallopt.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, spare_bytes)
        mallopt(_M_TRIM_THRESHOLD, spare_bytes)


def fsopen(filesystem: str) -> int:
    """fsopen(2): a close-on-exec file system context."""
    return _check(
        _libc.syscall(SYS_FSOPEN, filesystem.encode(), FSOPEN_CLOEXEC), "fsopen", filesystem
    )


def fsconfig_string(fd: int, key: str, value: str) -> None:
    """fsconfig(2) with FSCONFIG_SET_STRING; `value` is at most 255 bytes."""
    result = _libc.syscall(
        SYS_FSCONFIG, fd, FSCONFIG_SET_STRING, key.encode(), os.fsencode(value), 0
    )
    _check(result, f"fsconfig {key}", value)


def fsconfig_flag(fd: int, key: str) -> None:
    """fsconfig(2) with FSCONFIG_SET_FLAG."""
    _check(
        _libc.syscall(SYS_FSCONFIG, fd, FSCONFIG_SET_FLAG, key.encode(), None, 0), f"fsconfig {key}"
    )


def fsconfig_create(fd: int) -> None:
    """fsconfig(2) with FSCONFIG_CMD_CREATE."""
    result = _libc.syscall(SYS_FSCONFIG, fd, FSCONFIG_CMD_CREATE, None, None, 0)
    _check(result, "fsconfig create")


def fsmount(fd: int, attributes: int = 0) -> int:
    """fsmount(2): a detached mount of a created context."""
    return _check(_libc.syscall(SYS_FSMOUNT, fd, FSMOUNT_CLOEXEC, attributes), "fsmount")


def move_mount(fd: int, target: str) -> None:
    """move_mount(2) of the detached mount `fd` onto `target`."""
    result = _libc.syscall(
        SYS_MOVE_MOUNT, fd, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH
    )
    _check(result, "move_mount", target)


def detached_mount(
    filesystem: str, options: Iterable[tuple[str, str | None]], attributes: int = 0
) -> int:
    """A new mount that is attached nowhere and vanishes when its descriptor is closed.

    An option whose value is None is a flag. Raises OSError; what the kernel says beside the error
    number is part of its message.
    """
    context = fsopen(filesystem)
    try:
        for key, value in options:
            if value is None:
                fsconfig_flag(context, key)
            else:
                fsconfig_string(context, key, value)
        fsconfig_create(context)
        return fsmount(context, attributes)
    except OSError as error:
        if log := _context_log(context):
            raise OSError(error.errno, f"{error.strerror}: {log}", error.filename) from None
        raise
    finally:
        os.close(context)


def _context_log(fd: int) -> str:
    lines: list[str] = []
    try:
        while line := os.read(fd, 8192):
            lines.append(line.decode(errors="replace").strip())
    except OSError:  # ENODATA: the log is empty
        pass
    return "; ".join(lines)
