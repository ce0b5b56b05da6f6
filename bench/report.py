"""What a benchmark says: metrics with goals, the machine they were measured on, one JSON object."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """One number. `goal` is None for what is only told; `runs` are the numbers it was made of."""

    value: float
    goal: float | None
    better: Better
    runs: Sequence[object] = ()

    @property
    def met(self) -> bool:
        """Whether the value reaches its goal."""
        if self.goal is None:
            return True
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal

    def as_dict(self) -> dict[str, object]:
        """The metric as the JSON object has it."""
        return {
            "value": self.value,
            "goal": self.goal,
            "better": self.better,
            "met": self.met,
            "runs": list(self.runs),
        }


@dataclass
class Report:
    """The result of the benchmark `bench`."""

    bench: str
    metrics: dict[str, Metric] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether every goal is met."""
        return all(metric.met for metric in self.metrics.values())

    def json(self) -> str:
        """One line of JSON."""
        metrics = {name: metric.as_dict() for name, metric in self.metrics.items()}
        return json.dumps({"bench": self.bench, "machine": machine(), "metrics": metrics})

    def table(self) -> str:
        """For people: a line a metric."""
        lines = []
        for name, metric in self.metrics.items():
            sign = ">=" if metric.better == "higher" else "<="
            goal = f"(goal {sign} {metric.goal:g})" if metric.goal is not None else ""
            mark = "" if metric.met else "  MISSED"
            lines.append(f"{self.bench:12} {name:32} {metric.value:12.4g} {goal}{mark}")
        return "\n".join(lines)


def interleaved(
    first: Callable[[], float], second: Callable[[], float], runs: int = 5
) -> tuple[list[float], list[float]]:
    """Run A B A B ..., so that both meet the same machine; returns the numbers of each."""
    pairs = [(first(), second()) for _ in range(runs)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The ratio of the medians."""
    return statistics.median(numerators) / statistics.median(denominators)


def peak_mib() -> float:
    """The high-water mark of this program alone; getrusage counts what was there before exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def machine() -> dict[str, object]:
    """What the numbers depend on. No host name."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "python": sys.version.split()[0],
    }
