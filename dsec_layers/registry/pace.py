"""A limit to bandwidth that many threads share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """A token bucket: `bytes_per_s` on average, a second's worth at once after a pause.

    `clock` gives seconds that never go back.
    """

    def __init__(self, bytes_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._paid_until = clock() - 1.0

    def wait_s(self, amount_bytes: int) -> float:
        """How long to wait before so many bytes may pass; who asks later waits longer."""
        with self._lock:
            now = self._clock()
            self._paid_until = max(self._paid_until, now - 1.0) + amount_bytes / self._bytes_per_s
            return max(0.0, self._paid_until - now)
