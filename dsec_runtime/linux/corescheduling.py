"""Core scheduling: whether the kernel can keep strangers off the sibling thread of a core."""

from __future__ import annotations

import ctypes

_PR_SCHED_CORE, _GET, _THREAD = 62, 0, 0


def is_available() -> bool:
    """Whether prctl(2) knows PR_SCHED_CORE here; it needs SMT and CONFIG_SCHED_CORE."""
    libc = ctypes.CDLL(None, use_errno=True)
    cookie = ctypes.c_uint64()
    found: int = libc.prctl(_PR_SCHED_CORE, _GET, 0, _THREAD, ctypes.byref(cookie))
    return found == 0
