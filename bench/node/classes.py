"""Bursts of work in an `ls` sandbox beside busy sandboxes, as many as the machine has cores.

Each of those works for a part of every 20 ms, which is the load: 100 is all the time. With the
classes they are `be`; without, `ls` like the one that is measured. A burst is work that takes 5 ms
on an idle core, 10 ms after the one before; what counts is how long it took.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import AsyncIterator
from typing import Final

from bench.node.bare import Bare
from bench.node.counts import RUNS, percentile, told
from bench.report import Metric
from dsec_runtime.sdk import DSecClient, Sandbox
from dsec_runtime.spec import CpuClass
from tests.support.edges import RealEdge, args

LOADS: Final = (10, 25, 50, 100)
KINDS: Final = {"classes": CpuClass.BE, "no_classes": CpuClass.LS}  # what is busy is
PERCENTILES: Final = (50, 99)
_BURSTS: Final = 5 * RUNS
_WARM: Final = 10
# clock_gettime(CLOCK_MONOTONIC): perl without modules tells time in seconds only.
_NUMBER: Final = {"x86_64": 228, "aarch64": 113}[platform.machine()]
_CLOCK: Final = f"""
my $time = "\\0" x 16;
sub now {{ syscall({_NUMBER}, 1, $time); my ($s, $n) = unpack "qq", $time; $s + $n * 1e-9 }}
sub work {{ my $x = 0; $x += $_ for 1 .. $_[0] }}
"""
_CALIBRATE: Final = """
my $least = 1e9;
for (1 .. 50) {
    my $start = now(); work(20000); my $took = now() - $start;
    $least = $took if $took < $least;
}
printf "%d\n", 20000 * 0.005 / $least;
"""
_BURST: Final = """
for (1 .. $ARGV[1]) {
    select undef, undef, undef, 0.01;
    my $start = now(); work($ARGV[0]); printf "%.3f\n", 1000 * (now() - $start);
}
"""
_BUSY: Final = """
for (my $next = now();; $next += 0.02) {
    my $end = $next + 0.02 * $ARGV[0] / 100;
    work(200) while now() < $end;
    my $left = $next + 0.02 - now();
    if ($left > 0) { select undef, undef, undef, $left } else { $next = now() - 0.02 }
}
"""


async def measure(edge: RealEdge, _: Bare) -> dict[str, Metric]:
    """Alone first; then each load with and without the classes, one after the other."""
    async with edge.client() as client, await client.run_container(args()) as sandbox:
        size = (await _perl(sandbox, _CALIBRATE)).strip()
        alone = await _bursts(sandbox, size)
        metrics = {f"ls_alone_p{percent}_ms": _metric(alone, percent) for percent in PERCENTILES}
        for load in LOADS:
            for name, kind in KINDS.items():
                async with _busy(client, kind, load):
                    found = await _bursts(sandbox, size)
                for percent in PERCENTILES:
                    metrics[metric_name(name, percent, load)] = _metric(found, percent)
        return metrics


def metric_name(kind: str, percent: int, load: int) -> str:
    """The name of a percentile in the report; `kind` is of `KINDS`."""
    return f"ls_at_{load}_{kind}_p{percent}_ms"


@contextlib.asynccontextmanager
async def _busy(client: DSecClient, kind: CpuClass, load: int) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            made = await client.run_container(args(cpu_class=kind))
            await stack.enter_async_context(made)
            await made.start(["perl", "-e", _CLOCK + _BUSY, str(load)])
        await asyncio.sleep(0.5)
        yield


async def _bursts(sandbox: Sandbox, size: str) -> list[float]:
    """How long they took, in ms; the first ones are not counted."""
    lines = await _perl(sandbox, _BURST, size, str(_WARM + _BURSTS))
    return [float(line) for line in lines.splitlines()][_WARM:]


async def _perl(sandbox: Sandbox, program: str, *words: str) -> str:
    return (await sandbox.exec(["perl", "-e", _CLOCK + program, *words], check=True)).text


def _metric(milliseconds: list[float], percent: int) -> Metric:
    """A percentile; the median comes with all there are."""
    runs = milliseconds if percent == PERCENTILES[0] else ()
    return told(percentile(milliseconds, percent), runs=runs)
