"""Calls of the FnCall tier, commands of a sandbox, and their output."""

from __future__ import annotations

import time

from bench.node.bare import Bare
from bench.node.counts import RUNS, latency, told
from bench.report import Metric
from dsec_runtime.sdk import DSecClient, Sandbox
from dsec_runtime.spec import Environment, FncallTask
from tests.support.edges import RealEdge, args
from tests.support.sandboxes import BASE

FNCALL_GOAL_MS, EXEC_GOAL_MS, STREAM_GOAL_MB_S = 8.0, 6.0, 300.0
STREAMED = 512 << 20
STREAMS = 5
_WARM = 10


async def measure(edge: RealEdge, _: Bare) -> dict[str, Metric]:
    """One after the other."""
    async with edge.client() as client:
        metrics = await _fncalls(client)
        async with await client.run_container(args()) as sandbox:
            return metrics | await _execs(sandbox) | await _streams(sandbox)


async def _fncalls(client: DSecClient) -> dict[str, Metric]:
    task = FncallTask(environment=Environment(reference=BASE), code="echo done")
    seconds = []
    for _ in range(_WARM + RUNS):
        start = time.perf_counter()
        result = await client.run_fncall(task)
        seconds.append(time.perf_counter() - start)
        if result.check().text != "done\n":
            raise RuntimeError(f"a task wrote {result.text!r}")
    start = time.perf_counter()
    async for result in client.run_fncalls([task] * RUNS):
        result.check()
    rate = RUNS / (time.perf_counter() - start)
    return {
        **latency("fncall", seconds[_WARM:], FNCALL_GOAL_MS),
        "fncalls_a_second": told(rate, "higher"),
    }


async def _execs(sandbox: Sandbox) -> dict[str, Metric]:
    seconds = []
    for _ in range(_WARM + RUNS):
        start = time.perf_counter()
        await sandbox.exec(["true"], check=True)
        seconds.append(time.perf_counter() - start)
    return latency("exec", seconds[_WARM:], EXEC_GOAL_MS)


async def _streams(sandbox: Sandbox) -> dict[str, Metric]:
    rates = []
    for _ in range(STREAMS):
        start, size = time.perf_counter(), 0
        words = ["head", "-c", str(STREAMED), "/dev/zero"]
        async with await sandbox.start(words, output_limit=2 * STREAMED) as process:
            async for piece in process:
                size += len(piece.data)
        rates.append(STREAMED / 1e6 / (time.perf_counter() - start))
        if size != STREAMED:
            raise RuntimeError(f"{size} bytes came of {STREAMED}")
    median = sorted(rates)[len(rates) // 2]
    return {"stream_mb_s": Metric(median, STREAM_GOAL_MB_S, "higher", rates)}
