"""A start of a real environment from nothing local, with a trace of earlier runs against without.

The environment is that of `lazy_start`; its store stands behind a shaper: 20 ms a request, 100
MB/s. A first run records the trace. Each measured run has a fresh home, so a fresh daemon and
nothing cached; one half of them have been given the trace, as a pull from a store would give it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.lazy_start import COMMANDS, ENVIRONMENT, STATE, Start, dsec, environment
from bench.report import Metric, Report, interleaved, ratio
from bench.shaper import Counters

LATENCY_MS, MB_S = 20, 100
SPEED_GOAL, REQUESTS_GOAL = 1.5, 1 / 3


def main() -> Report:
    """Measure both commands."""
    environment()
    metrics = {}
    for name, command in COMMANDS.items():
        with tempfile.TemporaryDirectory(prefix="trace-", dir=STATE) as folder:
            trace = Path(folder) / "trace"
            _start(command, prefetch="off", record=trace)
            traced: list[Start] = []
            plain: list[Start] = []
            with_trace, without = interleaved(
                lambda command=command, trace=trace, traced=traced: _noted(  # type: ignore[misc]
                    traced, _start(command, trace=trace)
                ),
                lambda command=command, plain=plain: _noted(  # type: ignore[misc]
                    plain, _start(command, prefetch="off")
                ),
            )
        runs = list(zip(without, with_trace, strict=True))
        metrics[f"{name}_speedup"] = Metric(ratio(without, with_trace), SPEED_GOAL, "higher", runs)
        metrics[f"{name}_requests_share"] = Metric(
            sum(each.requests for each in traced) / sum(each.requests for each in plain),
            REQUESTS_GOAL,
            "lower",
            [(each.requests, other.requests) for each, other in zip(plain, traced, strict=True)],
        )
        metrics[f"{name}_bytes_share"] = Metric(
            sum(each.bytes for each in traced) / sum(each.bytes for each in plain),
            None,
            "lower",
            [(each.bytes, other.bytes) for each, other in zip(plain, traced, strict=True)],
        )
    return Report("trace", metrics)


def _noted(starts: list[Start], start: Start) -> float:
    starts.append(start)
    return start.seconds


def _start(
    command: tuple[str, ...],
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
            dsec(
                *(home, "--store", url, "run", "--prefetch", prefetch, ENVIRONMENT, "--"), *command
            )
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
