"""How long the kernel waits for its reads, how they end, and which were slow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from dsec_layers.lazyfs.figures import Histogram
from dsec_layers.lazyfs.layer import ServedLayer


class SlowRead(NamedTuple):
    """A read of the device of a layer, in bytes; `error` is empty when it was answered."""

    layer: ServedLayer
    offset: int
    length: int
    seconds: float
    error: str


class ReadTimes:
    """Of all layers of a daemon. Safe for many threads.

    `on_slow` is told, in the thread that answers, of each read that took `slow_s` or longer.
    """

    def __init__(
        self,
        slow_s: float = float("inf"),
        on_slow: Callable[[SlowRead], None] = lambda _: None,
    ) -> None:
        self.seconds = Histogram()
        self.errors: Counter[str] = Counter()  # reads seldom fail: a lost count would do no harm
        self._slow_s = slow_s
        self._on_slow = on_slow

    def ended(
        self,
        layer: ServedLayer,
        offset: int,
        length: int,
        began: float,
        error: BaseException | None,
    ) -> None:
        """A read that began at `began` (time.monotonic) has been answered."""
        seconds = time.monotonic() - began
        self.seconds.observe(seconds)
        if error is not None:
            self.errors[type(error).__name__] += 1
        if seconds >= self._slow_s:
            self._on_slow(SlowRead(layer, offset, length, seconds, str(error or "")))
