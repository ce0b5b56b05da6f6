"""How often things are done, and the numbers that are made of how long they took."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Final

from bench.report import Better, Metric

RUNS: Final = int(os.environ.get("DSEC_BENCH_RUNS", "100"))
SANDBOXES: Final = int(os.environ.get("DSEC_BENCH_SANDBOXES", "1000"))


def percentile(seconds: Sequence[float], percent: int) -> float:
    """The value below which `percent` of them are; the largest when there are few."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def milliseconds(seconds: Sequence[float]) -> list[float]:
    """The same in ms, as a report has them."""
    return [round(each * 1000, 3) for each in seconds]


def latency(name: str, seconds: Sequence[float], goal: float | None = None) -> dict[str, Metric]:
    """`NAME_ms`, the median, with its goal, and `NAME_p99_ms`."""
    runs = milliseconds(seconds)
    return {
        f"{name}_ms": Metric(statistics.median(runs), goal, "lower", runs),
        f"{name}_p99_ms": told(percentile(runs, 99)),
    }


def told(value: float, better: Better = "lower", runs: Sequence[object] = ()) -> Metric:
    """A number without a goal."""
    return Metric(value, None, better, runs)
