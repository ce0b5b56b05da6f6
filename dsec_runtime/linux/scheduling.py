"""What a process inherits from its parent of how it is scheduled, and Python does not tell."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

# Source: asm/unistd_64.h of x86, asm-generic/unistd.h of aarch64.
_NUMBERS: Final = {"x86_64": (252, 315), "aarch64": (31, 275)}
_IOPRIO_WHO_PROCESS: Final = 1
_ATTR_BYTES: Final = 56  # struct sched_attr with the clamps of utilisation

_libc = ctypes.CDLL(None, use_errno=True)


def inherited(pid: int) -> tuple[object, ...]:
    """Policy, priorities, clamps, I/O priority and processors of a process. Raises OSError.

    Two are equal when a new child of the process would be scheduled in the same way. See
    sched_getattr(2), ioprio_get(2).
    """
    ioprio_get, sched_getattr = _NUMBERS[platform.machine()]
    attributes = ctypes.create_string_buffer(_ATTR_BYTES)
    _check(_libc.syscall(sched_getattr, pid, attributes, _ATTR_BYTES, 0))
    io_priority = _check(_libc.syscall(ioprio_get, _IOPRIO_WHO_PROCESS, pid))
    return (attributes.raw, io_priority, frozenset(os.sched_getaffinity(pid)))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
