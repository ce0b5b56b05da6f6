"""One node through SDK and edge: its sandboxes against bare crun, and what its commands cost.

Creation: from the request until the first command, `true`, has ended, on a layer that is mounted
already, against `crun run` of `true` on a prepared bundle of the same root file system, one after
the other; and two callers that make and remove sandboxes against two that run crun in a loop.
Commands: a call of the FnCall tier, a command in a sandbox, output as fast as it comes.
Idle sandboxes: DSEC_BENCH_SANDBOXES of them (1,000), and as many bare containers with `sleep`.
Pause: 256 MiB that a program holds go to swap and come back, against the same program outside.
Classes: bursts of work in an `ls` sandbox beside busy ones, with and without their being `be`.

DSEC_BENCH_RUNS (100) is how often short things are done; DSEC_BENCH_PARTS names parts to measure,
separated by commas, all unless given. Needs root, crun and an idle machine of two cores or more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from bench.node import classes, commands, creating, idle, pausing
from bench.node.bare import Bare
from bench.report import Metric, Report
from tests.support.edges import RealEdge, real_edge

_Part = Callable[[RealEdge, Bare], Awaitable[dict[str, Metric]]]
PARTS: Final[dict[str, _Part]] = {
    "creating": creating.measure,
    "commands": commands.measure,
    "idle": idle.measure,
    "pausing": pausing.measure,
    "classes": classes.measure,
}


def main() -> Report:
    """Measure the parts, each on an edge of its own, so that none inherits from another."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, then end
    wanted = os.environ.get("DSEC_BENCH_PARTS", ",".join(PARTS)).split(",")
    report = Report("node")
    for name in wanted:
        report.metrics |= _measured(PARTS[name])
    return report


def _measured(part: _Part) -> dict[str, Metric]:
    async def measure() -> dict[str, Metric]:
        return await part(edge, bare)

    with real_edge() as edge, Bare(edge.home.parent / "root") as bare:
        return asyncio.run(measure())
