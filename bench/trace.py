"""A start of a real environment from nothing local, with a trace of earlier runs against without.

The environment is that of `lazy_start`; its store stands behind a shaper: 20 ms a request, 100
MB/s. It starts for one short command, and for the first test of its workspace. A first run records
the trace. Each measured run has a fresh home, so a fresh daemon and
nothing cached; a third of them have been given the trace, as a pull from a store would give it, and
a third start what `repack --by-trace` has made of the environment, with its trace.
"""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.lazy_start import COMMANDS, ENVIRONMENT, STATE, Start, dsec, environment
from bench.report import Metric, Report, ratio
from bench.shaper import Counters

LATENCY_MS, MB_S = 20, 100
RUNS = 5
STARTS = {
    "first_command": COMMANDS["first_command"],
    "first_test": (*COMMANDS["tests"], "tests/test_config.py::test_config_from_pyfile"),
}
SPEED_GOAL, REQUESTS_GOAL = 1.5, 1 / 3


def main() -> Report:
    """Measure both."""
    environment()
    metrics: dict[str, Metric] = {}
    for name, command in STARTS.items():
        with tempfile.TemporaryDirectory(prefix="trace-", dir=STATE) as folder:
            trace = Path(folder) / "trace"
            _start(command, prefetch="off", record=trace)
            repacked, its_trace = _repacked(name, trace)
            ways = {
                "plain": partial(_start, command, prefetch="off"),
                "traced": partial(_start, command, trace=trace),
                "repacked": partial(_start, command, repacked, trace=its_trace),
            }
            starts: dict[str, list[Start]] = {way: [] for way in ways}
            for _ in range(RUNS):
                for way, start in ways.items():
                    starts[way].append(start())
        plain = starts.pop("plain")
        for way, found in starts.items():
            metrics |= _metrics(f"{name}_{way}", plain, found)
    return Report("trace", metrics)


def _metrics(name: str, plain: list[Start], found: list[Start]) -> dict[str, Metric]:
    def runs(field: str) -> tuple[list[float], list[float]]:
        return [getattr(each, field) for each in plain], [getattr(each, field) for each in found]

    goals = {"requests": REQUESTS_GOAL, "bytes": None}
    without, seconds = runs("seconds")
    pairs = list(zip(without, seconds, strict=True))
    metrics = {f"{name}_speedup": Metric(ratio(without, seconds), SPEED_GOAL, "higher", pairs)}
    for field, goal in goals.items():
        before, after = runs(field)
        pairs = list(zip(before, after, strict=True))
        metrics[f"{name}_{field}_share"] = Metric(ratio(after, before), goal, "lower", pairs)
    return metrics


def _repacked(name: str, trace: Path) -> tuple[str, Path]:
    """The environment rearranged by a trace, in the store, and its own trace."""
    build, made = STATE / "build", f"env/bench/by-{name.replace('_', '-')}:v1"
    dsec(build, "trace", "merge", str(trace))
    told = json.loads(dsec(build, "repack", "--by-trace", ENVIRONMENT, "-t", made))
    dsec(build, "push", made, f"dir://{STATE}/store")
    dsec(build, "trace", "rm", ENVIRONMENT)  # else the next command's would hold it too
    return made, build / "traces" / f"{told['after'].partition(':')[2]}.zst"


def _start(
    command: tuple[str, ...],
    reference: str = ENVIRONMENT,
    *,
    prefetch: str = "auto",
    trace: Path | None = None,
    record: Path | None = None,
) -> Start:
    with tempfile.TemporaryDirectory(prefix="home-", dir=STATE) as name:
        home, counted = Path(name) / "home", Path(name) / "counters"
        url = f"shaped+dir://{STATE}/store?latency_ms={LATENCY_MS}&mb_s={MB_S}&counters={counted}"
        if trace is not None:
            dsec(home, "trace", "merge", str(trace))
        started = time.perf_counter()
        try:
            dsec(*(home, "--store", url, "run", "--prefetch", prefetch, reference, "--"), *command)
            seconds = time.perf_counter() - started
        finally:
            dsec(home, "daemon", "stop", "--force")
        if record is not None:
            (made,) = (home / "traces").glob("*.zst")
            made.rename(record)
        counters = Counters(counted)
        try:
            return Start(seconds, counters.requests, counters.bytes)
        finally:
            counters.close()
