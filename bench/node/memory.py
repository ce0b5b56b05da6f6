"""What memory containers take, on a machine that does other things too.

Of the kernel's: slabs, stacks, page tables and per-processor data, after caches were dropped. Of
the groups': anonymous pages, and files in memory. Not counted: pages of files, which the kernel
drops when it needs them and which on both sides are those of a root file system that all share; and
what the kernel takes by the page and has no name for, as the requests of a loop device. On a
machine that does nothing else free memory tells of that too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from dsec_runtime.resources import controlfiles, layout

_PATIENCE_S: Final = 6.0
_STEADY_BYTES: Final = 1 << 20
_SETTLE_S: Final = 1.0
_KERNELS: Final = ("Slab", "KernelStack", "PageTables", "Percpu")
_OF_PROCESSES: Final = ("rss", "anon", "shmem")  # of v1, of v2, of both
_CHARGED: Final = ("memory.usage_in_bytes", "memory.kmem.usage_in_bytes", "memory.current")


class Used(NamedTuple):
    """Bytes in use on the machine: of the kernel, as far as it names it, and all."""

    kernel: int
    all: int


async def settled() -> Used:
    """What is in use when caches are dropped and it has come to rest, or nearly so."""
    give_up = time.monotonic() + _PATIENCE_S
    last, now = await _dropped(), await _dropped()
    while abs(now.kernel - last.kernel) >= _STEADY_BYTES and time.monotonic() < give_up:
        last, now = now, await _dropped()
    return now


async def _dropped() -> Used:
    await asyncio.to_thread(Path("/proc/sys/vm/drop_caches").write_text, "3")
    await asyncio.sleep(_SETTLE_S)
    fields = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    kernel = sum(fields[name] for name in _KERNELS)
    return Used(kernel, fields["MemTotal"] - fields["MemFree"])


def of_processes(groups: Iterable[str]) -> int:
    """Bytes of anonymous pages and of files in memory that these groups account for."""
    stats = (controlfiles.fields(_folder() / name / "memory.stat") for name in groups)
    return sum(stat.get(key, 0) for stat in stats for key in _OF_PROCESSES)


def charged(groups: Iterable[str]) -> int:
    """Bytes that these groups account for, the kernel's memory and pages of files included."""
    return sum(_number(_folder() / name / file) for name in groups for file in _CHARGED)


def of_process(pid: int) -> tuple[int, int]:
    """Bytes of a process: resident, and anonymous."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        found[name] = int(value) * 1024
    return found["Rss:"], found["Anonymous:"]


@functools.cache
def _folder() -> Path:
    """Found once, as thousands of containers make the list of mounts long."""
    found = layout.find()
    folder = found.v1.get("memory") or found.v2
    assert folder is not None
    return folder


def _number(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int(path.read_text())
    return 0
