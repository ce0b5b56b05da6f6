"""What is measured of requests: how long they took, how they ended. Cheap enough for every read."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from typing import Final

# A memory hit takes some 20 us, a store of a data centre some ms, a deadline some 10 s.
BOUNDS_S: Final = (
    *(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


class Histogram:
    """Counts durations by the first bound that holds them. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        place = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            self._counts[place] += 1
            self._sum_s += seconds

    def cumulated(self) -> tuple[list[int], float]:
        """How many took at most each of BOUNDS_S, and in the end how many there are; their sum."""
        with self._lock:
            counts, sum_s = list(self._counts), self._sum_s
        for place in range(1, len(counts)):
            counts[place] += counts[place - 1]
        return counts, sum_s


class StoreFigures:
    """Of one store. `errors` are by class; all but `seconds` change with the lanes' lock held."""

    def __init__(self) -> None:
        self.requests = 0
        self.answered_bytes = 0
        self.refused = 0
        self.errors: Counter[str] = Counter()
        self.seconds = Histogram()
