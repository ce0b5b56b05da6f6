"""Closing descriptors that take long to close, without waiting.

The last descriptor of a mount that is attached nowhere ends the mount, and perhaps its file system:
the kernel waits for all processors to have seen that (RCU), and for the disk.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from dsec_layers.linux import mount

Last = Callable[[int], None]  # is given the descriptor
_log = logging.getLogger(__name__)


class Closer:
    """A thread that closes what it is given; safe for many threads."""

    def __init__(self) -> None:
        self._given: queue.Queue[tuple[int, Last] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="closer", daemon=True)
        self._thread.start()

    def take(self, fd: int, last: Last = lambda _: None) -> None:
        """Close it soon, after `last` was done with it."""
        self._given.put((fd, last))

    def unmount(self, place: Path, last: Last = lambda _: None) -> None:
        """Take the mount at `place` out of sight at once; what it was ends soon, after `last`.

        Raises OSError (EINVAL where nothing is mounted, ENOENT).
        """
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mount.unmount(place, lazy=True)
        except OSError:
            os.close(fd)
            raise
        self.take(fd, last)

    def settle(self) -> None:
        """Wait until all that was given is closed."""
        self._given.join()

    def close(self) -> None:
        """Settle, and take no more."""
        self._given.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (given := self._given.get()) is not None:
            fd, last = given
            try:
                last(fd)
            except OSError as error:
                _log.warning("before a mount ended: %s", error)
            os.close(fd)
            self._given.task_done()
