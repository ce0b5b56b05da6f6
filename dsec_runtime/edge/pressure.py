"""How pressed the node is, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_ENOUGH: Final = 4096
_LATELY_S: Final = 0.1


class Load(NamedTuple):
    """Memory that could be had, and the share of the last 10 s (per cent) in which all waited.

    `memory_pressure` is `full avg10` of PSI; 0 where the kernel has no PSI.
    """

    available_bytes: int
    memory_pressure: float


def load(proc: Path | str = "/proc") -> Load:
    """The load now."""
    return Load(_available(f"{proc}/meminfo"), _pressure(f"{proc}/pressure/memory"))


def lately(
    measure: Callable[[], Load] = load, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Load]:
    """`measure`, asked again only when its answer is older than 0.1 s.

    To count free memory the kernel goes through all block devices, and each sandbox has one: beside
    2,800 of them that took a tenth of the edge's loop at 30 creations a second.
    """
    asked, answer = clock(), measure()

    def measured() -> Load:
        nonlocal asked, answer
        if (now := clock()) - asked > _LATELY_S:
            asked, answer = now, measure()
        return answer

    return measured


def _available(path: str) -> int:
    _, _, found = _read(path).partition(b"MemAvailable:")
    return int(found.split()[0]) * 1024 if found else 0


def _pressure(path: str) -> float:
    try:
        _, _, found = _read(path).partition(b"full avg10=")
    except OSError:  # built without, or switched off
        return 0.0
    return float(found.split()[0]) if found else 0.0


def _read(path: str) -> bytes:
    """The begin of a file; a sandbox is not made without a look at two."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _ENOUGH)
    finally:
        os.close(fd)
