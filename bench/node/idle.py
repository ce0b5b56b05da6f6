"""Many sandboxes that do nothing: memory for each, and how one of them answers.

Bare containers and sandboxes are made in turns, a tenth of all at a time, and what is in use is
measured between (see `memory`); the median of the tenths counts, so that what is made once on the
machine does not. To that of the sandboxes belongs what the edge keeps for each. Loop devices that
the machine had before cost it nothing now: only numbers of more than a few of them tell all.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from bench.node import memory
from bench.node.bare import Bare
from bench.node.counts import RUNS, SANDBOXES, latency, told
from bench.report import Metric, ratio
from dsec_runtime.resources.groups import PARENT
from dsec_runtime.sdk import DSecClient, Sandbox
from tests.support.edges import RealEdge, args

GOAL, EDGE_GOAL_MIB = 1.5, 300.0
_CALLERS: Final = 4
_PARTS: Final = 10


class _Growth(NamedTuple):
    """Bytes for each of one part: as `memory` counts, and by how much free memory fell."""

    counted: float
    free: float


async def measure(edge: RealEdge, bare: Bare) -> dict[str, Metric]:
    """The first one of each side is not counted."""
    async with edge.client() as client:
        bare.start()
        first = await client.run_container(args())
        names: list[str] = []
        made: list[Sandbox] = []
        try:
            theirs, ours, seconds = await _grown(edge, client, bare, names, made)
            charged = (memory.charged(_groups(made)), memory.charged(names))
            resident, _ = memory.of_process(_pid(edge))
            await asyncio.to_thread(bare.delete_all)
            answered = await _exec_among(made)
        finally:
            await _stop([first, *made])
    counted = [each.counted for each in ours], [each.counted for each in theirs]
    return {
        "idle_memory_vs_crun": Metric(ratio(*counted), GOAL, "lower", counted),
        "idle_memory_kib": told(statistics.median(counted[0]) / 1024),
        "crun_idle_memory_kib": told(statistics.median(counted[1]) / 1024),
        "idle_free_kib": told(statistics.median(each.free for each in ours) / 1024),
        "crun_idle_free_kib": told(statistics.median(each.free for each in theirs) / 1024),
        "idle_cgroup_kib": told(charged[0] / len(made) / 1024),
        "crun_idle_cgroup_kib": told(charged[1] / len(names) / 1024),
        "edge_rss_mib": Metric(resident / (1 << 20), EDGE_GOAL_MIB, "lower"),
        "idle_sandboxes": told(len(made), "higher"),
        "idle_creations_a_second": told(len(made) / seconds, "higher"),
        **latency("exec_among_idle", answered),
    }


async def _grown(
    edge: RealEdge, client: DSecClient, bare: Bare, names: list[str], made: list[Sandbox]
) -> tuple[list[_Growth], list[_Growth], float]:
    """Part by part, those of both sides, and the seconds in which the sandboxes were made."""
    count = SANDBOXES // _PARTS
    seconds = 0.0

    async def start() -> int:
        new = [await asyncio.to_thread(bare.start) for _ in range(count)]
        names.extend(new)
        return memory.of_processes(new)

    async def create() -> int:
        nonlocal seconds
        _, before = memory.of_process(_pid(edge))
        begin = time.perf_counter()
        new = await _create(client, count)
        seconds += time.perf_counter() - begin
        made.extend(new)
        _, after = memory.of_process(_pid(edge))
        return memory.of_processes(_groups(new)) + after - before

    theirs, ours = [], []
    for _ in range(_PARTS):
        theirs.append(await _growth(start, count))
        ours.append(await _growth(create, count))
    return theirs, ours, seconds


async def _growth(more: Callable[[], Awaitable[int]], count: int) -> _Growth:
    before = await memory.settled()
    own = await more()
    now = await memory.settled()
    return _Growth((now.kernel - before.kernel + own) / count, (now.all - before.all) / count)


async def _create(client: DSecClient, count: int) -> list[Sandbox]:
    left = iter(range(count))
    made: list[Sandbox] = []

    async def caller() -> None:
        for _ in left:
            made.append(await client.run_container(args()))  # noqa: PERF401 # each is one's

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


def _groups(sandboxes: Iterable[Sandbox]) -> list[str]:
    return [f"{PARENT}/{each.id}" for each in sandboxes]


def _pid(edge: RealEdge) -> int:
    assert edge.process is not None
    return edge.process.pid
