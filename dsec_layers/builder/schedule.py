"""Tasks done side by side by threads, each as soon as those it needs are done.

Of the tasks that are ready the one with the smallest number goes first, so that one thread does all
in the order of their numbers.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from dsec_layers.linux import cancelling

# A signal that comes right before the wait does not end it, so it never lasts.
_SIGNAL_POLL_S: Final = 0.1


def carry_out(
    tasks: Mapping[int, Collection[int]], perform: Callable[[int], None], jobs: int
) -> None:
    """Call `perform` with each number of `tasks`, which names the numbers that it needs.

    At most `jobs` calls run at once, in threads of their own. The first that raises ends all: the
    others are stopped (`linux.cancelling`), no further one begins, and when none runs its error is
    raised. An interrupt of the calling thread does the same.
    """
    running = _Running(tasks, perform)
    threads = [
        threading.Thread(target=running.work, name=f"build-{number}")
        for number in range(min(jobs, len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        while not running.over.wait(_SIGNAL_POLL_S):
            pass
    finally:
        running.end()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if running.error is not None:
        raise running.error


class _Running:
    """What the threads share. `over` is set when all is done, or nothing more will be."""

    def __init__(
        self, tasks: Mapping[int, Collection[int]], perform: Callable[[int], None]
    ) -> None:
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._perform = perform
        self._changed = threading.Condition()
        self._needs = {number: set(needs) for number, needs in tasks.items()}
        self._ready = [number for number, needs in self._needs.items() if not needs]
        self._left = len(self._needs)
        heapq.heapify(self._ready)
        if not self._left:
            self.over.set()

    def work(self) -> None:
        """Do tasks until none is left."""
        with cancelling.by(self.over):
            while (number := self._next()) is not None:
                try:
                    self._perform(number)
                except BaseException as error:  # it is raised again where all is waited for
                    self.end(error)
                else:
                    self._done(number)

    def end(self, error: BaseException | None = None) -> None:
        """Begin nothing more, and stop what runs; the first error counts."""
        with self._changed:
            if not self.over.is_set():
                self.error = error
                self.over.set()
            self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            while not self._ready and not self.over.is_set():
                self._changed.wait()
            return None if self.over.is_set() else heapq.heappop(self._ready)

    def _done(self, number: int) -> None:
        with self._changed:
            for other, needs in self._needs.items():
                if number in needs:
                    needs.remove(number)
                    if not needs:
                        heapq.heappush(self._ready, other)
            self._left -= 1
            if not self._left:
                self.over.set()
            self._changed.notify_all()
