"""From the request for a sandbox to the end of its first command, against bare crun."""

from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from bench.node.bare import Bare
from bench.node.counts import RUNS, latency, told
from bench.report import Metric, ratio
from dsec_runtime.sdk import DSecClient
from tests.support.edges import RealEdge, args

GOAL, RATE_GOAL = 2.5, 0.6
ROUNDS = 5
_QUIET_S = 0.05  # what one has left to be done is not done in the time of the other


async def measure(edge: RealEdge, bare: Bare) -> dict[str, Metric]:
    """Latencies one after the other, then rates in turns."""
    async with edge.client() as client:
        await _cycle(client, "true")  # mounts the layer, and makes what is made ahead
        bare.run()
        return await _latencies(client, bare) | await _rates(client, bare)


async def _latencies(client: DSecClient, bare: Bare) -> dict[str, Metric]:
    created, commanded, ours, theirs = [], [], [], []
    for _ in range(RUNS):
        await asyncio.sleep(_QUIET_S)
        start = time.perf_counter()
        async with await client.run_container(args()) as sandbox:
            there = time.perf_counter()
            await sandbox.exec(["true"], check=True)
            end = time.perf_counter()
        created.append(there - start)
        commanded.append(end - there)
        ours.append(end - start)
        await asyncio.sleep(_QUIET_S)
        theirs.append(await asyncio.to_thread(bare.run))
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "first_command_vs_crun": Metric(ratio(ours, theirs), GOAL, "lower", pairs),
        **latency("first_command", ours),
        **latency("first_command_create", created),
        **latency("first_command_exec", commanded),
        **latency("crun_run", theirs),
    }


async def _rates(client: DSecClient, bare: Bare) -> dict[str, Metric]:
    """Sandboxes a second, made and removed by two callers in a loop; and used between, told."""
    each = max(1, RUNS // ROUNDS)
    ours, theirs, used = [], [], []
    for _ in range(ROUNDS):
        ours.append(await _rate(client, each))
        theirs.append(await asyncio.to_thread(_bare_rate, bare, each))
        used.append(await _rate(client, each, "true"))
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "creation_rate_vs_crun": Metric(ratio(ours, theirs), RATE_GOAL, "higher", pairs),
        "creations_a_second": told(statistics.median(ours), "higher"),
        "crun_runs_a_second": told(statistics.median(theirs), "higher"),
        "creations_with_command_a_second": told(statistics.median(used), "higher", used),
    }


async def _rate(client: DSecClient, each: int, *command: str) -> float:
    async def caller() -> None:
        for _ in range(each):
            await _cycle(client, *command)

    await asyncio.sleep(_QUIET_S)
    start = time.perf_counter()
    await asyncio.gather(caller(), caller())
    return 2 * each / (time.perf_counter() - start)


async def _cycle(client: DSecClient, *command: str) -> None:
    async with await client.run_container(args()) as sandbox:
        if command:
            await sandbox.exec(command, check=True)


def _bare_rate(bare: Bare, each: int) -> float:
    def loop(caller: int) -> None:
        for _ in range(each):
            bare.run(caller)

    time.sleep(_QUIET_S)
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(loop, range(2)))
    return 2 * each / (time.perf_counter() - start)
