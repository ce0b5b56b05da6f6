"""How pressed the node is, from /proc."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Load(NamedTuple):
    """Memory that could be had, and the share of the last 10 s (per cent) in which all waited.

    `memory_pressure` is `full avg10` of PSI; 0 where the kernel has no PSI.
    """

    available_bytes: int
    memory_pressure: float


def load(proc: Path = Path("/proc")) -> Load:
    """The load now."""
    return Load(_available(proc / "meminfo"), _pressure(proc / "pressure/memory"))


def _available(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _pressure(path: Path) -> float:
    try:
        lines = path.read_text().splitlines()
    except OSError:  # built without, or switched off
        return 0.0
    for line in lines:
        if line.startswith("full "):
            return float(line.split()[1].removeprefix("avg10="))
    return 0.0
