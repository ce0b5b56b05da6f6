"""Many sandboxes that do nothing: memory of the machine for each, and how one of them answers.

What counts is by how much MemAvailable falls: that has processes, slabs, page tables, mounts and
what the daemons keep, on both sides. They are made in five parts, and the part in the middle
counts, so that what others do once on the machine does not. What the memory cgroups account for is
told beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from bench.node.bare import Bare
from bench.node.counts import RUNS, SANDBOXES, latency, told
from bench.report import Metric, ratio
from dsec_runtime.edge import pressure
from dsec_runtime.resources import layout
from dsec_runtime.resources.groups import PARENT
from dsec_runtime.sdk import DSecClient, Sandbox
from tests.support.edges import RealEdge, args

GOAL, EDGE_GOAL_MIB = 1.5, 300.0
_CALLERS: Final = 4
_PARTS: Final = 5
_PATIENCE_S: Final = 8.0
_STEADY: Final = 1 << 20
_COUNTERS: Final = ("memory.usage_in_bytes", "memory.kmem.usage_in_bytes", "memory.current")


async def measure(edge: RealEdge, bare: Bare) -> dict[str, Metric]:
    """Bare containers first, then sandboxes; the first one of each is not counted."""
    bare.start()
    names: list[str] = []

    async def start(count: int) -> None:
        names.extend([await asyncio.to_thread(bare.start) for _ in range(count)])

    theirs = await _growth(start)
    of_their_groups = _charged(names)
    await asyncio.to_thread(bare.delete_all)
    async with edge.client() as client:
        return await _measured(edge, client, theirs, of_their_groups)


async def _measured(
    edge: RealEdge, client: DSecClient, theirs: list[float], of_their_groups: float
) -> dict[str, Metric]:
    first = await client.run_container(args())
    made: list[Sandbox] = []
    seconds = 0.0

    async def create(count: int) -> None:
        nonlocal seconds
        start = time.perf_counter()
        made.extend(await _create(client, count))
        seconds += time.perf_counter() - start

    ours = await _growth(create)
    of_our_groups = _charged(f"{PARENT}/{each.id}" for each in made)
    resident = _resident_mib(edge)
    answered = await _exec_among(made)
    await _stop([first, *made])
    return {
        "idle_memory_vs_crun": Metric(ratio(ours, theirs), GOAL, "lower", [ours, theirs]),
        "idle_memory_kib": told(statistics.median(ours) / 1024),
        "crun_idle_memory_kib": told(statistics.median(theirs) / 1024),
        "idle_cgroup_kib": told(of_our_groups / 1024),
        "crun_idle_cgroup_kib": told(of_their_groups / 1024),
        "edge_rss_mib": Metric(resident, EDGE_GOAL_MIB, "lower"),
        "idle_sandboxes": told(SANDBOXES, "higher"),
        "idle_creations_a_second": told(SANDBOXES / seconds, "higher"),
        **latency("exec_among_idle", answered),
    }


async def _growth(more: Callable[[int], Awaitable[None]]) -> list[float]:
    """Bytes for each, by part after part of all. Raises RuntimeError on a machine that is busy."""
    count = SANDBOXES // _PARTS
    found = []
    before = await _available()
    for _ in range(_PARTS):
        await more(count)
        now = await _available()
        found.append((before - now) / count)
        before = now
    if statistics.median(found) <= 0:
        raise RuntimeError(f"others gave memory back meanwhile: {found}")
    return found


async def _create(client: DSecClient, count: int) -> list[Sandbox]:
    left = iter(range(count))
    made: list[Sandbox] = []

    async def caller() -> None:
        made.extend([await client.run_container(args()) for _ in left])

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
    return made


async def _stop(sandboxes: list[Sandbox]) -> None:
    left = iter(sandboxes)

    async def caller() -> None:
        for sandbox in left:
            await sandbox.stop()

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))


async def _exec_among(made: list[Sandbox]) -> list[float]:
    choose = random.Random(6)
    seconds = []
    for _ in range(2 * RUNS):
        sandbox = choose.choice(made)
        start = time.perf_counter()
        await sandbox.exec(["true"], check=True)
        seconds.append(time.perf_counter() - start)
    return seconds


async def _available() -> int:
    """MemAvailable when it has come to rest, or nearly so."""
    give_up = time.monotonic() + _PATIENCE_S
    last, now = -_STEADY, pressure.load().available_bytes
    while abs(now - last) >= _STEADY and time.monotonic() < give_up:
        await asyncio.sleep(1)
        last, now = now, pressure.load().available_bytes
    return now


def _charged(names: Iterable[str]) -> float:
    """The mean of what their groups account for, the kernel's memory for them included."""
    found = layout.find()
    folder = found.v1.get("memory") or found.v2
    assert folder is not None
    sums = [sum(map(_number, (folder / name / counter for counter in _COUNTERS))) for name in names]
    return sum(sums) / len(sums)


def _number(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int(path.read_text())
    return 0


def _resident_mib(edge: RealEdge) -> float:
    assert edge.process is not None
    for line in Path(f"/proc/{edge.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the edge has no VmRSS")
