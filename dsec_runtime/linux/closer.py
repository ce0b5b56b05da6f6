"""Closing descriptors that take long to close, without waiting.

The last descriptor of a mount that is attached nowhere ends the mount, and the kernel waits for all
processors to have seen that (RCU): milliseconds, for each.
"""

from __future__ import annotations

import os
import queue
import threading


class Closer:
    """A thread that closes what it is given; safe for many threads."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="closer", daemon=True)
        self._thread.start()

    def take(self, fd: int) -> None:
        """Close it soon."""
        self._given.put(fd)

    def close(self) -> None:
        """Wait until all is closed."""
        self._given.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (fd := self._given.get()) is not None:
            os.close(fd)
