"""Core scheduling: who has a cookie shares a processor's core only with those who have the same.

Source: the kernel's admin-guide/hw-vuln/core-scheduling.rst and include/uapi/linux/prctl.h.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SCHED_CORE: Final = 62
_GET: Final = 0
_CREATE: Final = 1
_THREAD: Final = 0
_PROCESS: Final = 1


@functools.cache
def supported() -> bool:
    """Whether this kernel has it, for cores of which there are more threads than one."""
    cookie = ctypes.c_uint64()
    return _prctl(_GET, os.getpid(), _THREAD, ctypes.addressof(cookie)) == 0


def give_cookie(pid: int) -> None:
    """Give a process, and all that it will start, a cookie of its own. Raises OSError."""
    if _prctl(_CREATE, pid, _PROCESS, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"core scheduling of {pid}: {os.strerror(number)}")


def _prctl(command: int, pid: int, scope: int, address: int) -> int:
    arguments = (ctypes.c_ulong(it) for it in (command, pid, scope, address))
    return int(_libc.prctl(_PR_SCHED_CORE, *arguments))
