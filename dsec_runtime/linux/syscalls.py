"""System calls of the runtime that Python and `dsec_layers.linux.syscalls` lack.

Named and typed as in their man pages; each raises OSError with the file name.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Final

from dsec_layers.linux.syscalls import AT_FDCWD

_libc = ctypes.CDLL(None, use_errno=True)

# The same numbers on x86_64 and aarch64.
_SYS_OPEN_TREE: Final = 428
_SYS_PROCESS_MADVISE: Final = 440
_SYS_MOUNT_SETATTR: Final = 442

_OPEN_TREE_CLONE: Final = 1
_AT_EMPTY_PATH: Final = 0x1000
_MOUNT_ATTR_IDMAP: Final = 0x100000

MOUNT_ATTR_NOSUID: Final = 2
MOUNT_ATTR_NODEV: Final = 4
MOUNT_ATTR_NOATIME: Final = 0x10

CLONE_FS: Final = 0x200
CLONE_NEWNS: Final = 0x20000
MS_BIND: Final = 4096
MS_REC: Final = 0x4000
MS_SLAVE: Final = 1 << 19
MS_PRIVATE: Final = 1 << 18

MADV_WILLNEED: Final = 3
MADV_PAGEOUT: Final = 21
MOST_RANGES: Final = 1024  # UIO_MAXIOV: what one process_madvise takes


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


class _Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _check(result: int, name: str, path: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", path or None)
    return result


def open_tree(path: str) -> int:
    """open_tree(2) with OPEN_TREE_CLONE: a detached copy of the mount at `path`."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    return _check(
        _libc.syscall(_SYS_OPEN_TREE, AT_FDCWD, os.fsencode(path), flags), "open_tree", path
    )


def idmap(mount: int, userns: int) -> None:
    """mount_setattr(2): show the detached mount with the ids that the user namespace maps."""
    attr = _MountAttr(set=_MOUNT_ATTR_IDMAP, userns=userns)
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH, ctypes.byref(attr), ctypes.sizeof(attr)
    )
    _check(result, "mount_setattr")


def process_madvise(pidfd: int, ranges: Sequence[tuple[int, int]], advice: int) -> int:
    """process_madvise(2) of at most MOST_RANGES (start, length); the bytes that were advised."""
    vector = (_Range * len(ranges))(*(_Range(*each) for each in ranges))
    result = _libc.syscall(_SYS_PROCESS_MADVISE, pidfd, vector, len(ranges), advice, 0)
    return _check(result, "process_madvise")
