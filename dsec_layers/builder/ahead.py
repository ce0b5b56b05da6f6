"""Work for the packing of a layer, done while a command runs, when we would only wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dsec_layers.builder.folding import one_diff
from dsec_layers.builder.stepcache import Result
from dsec_layers.linux import cancelling
from dsec_layers.model.content import Source
from dsec_layers.sources.upper import walk_upper

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Ahead:
    """Reads the results of a stage, from the first `begin` on, in a thread of its own.

    `also` is called there first. A context manager that stops the thread and waits for its end.
    """

    def __init__(self, also: Callable[[], None]) -> None:
        self._also = also
        self._pool: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._begun: Future[None] | None = None
        self._head: Sequence[Result] = ()
        self._folded: Future[Source] | None = None  # all of the head
        self._walks: dict[Path, Future[Source]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def begin(self, results: Sequence[Result]) -> None:
        """Read these results, oldest first; by and by there are more behind them.

        To be called by one thread at a time.
        """
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # a build from the cache needs none

            self._pool = ThreadPoolExecutor(1, "ahead")
            self._begun = self._pool.submit(self._also)
            self._head = results
            self._folded = self._pool.submit(self._fold) if results else None
        for result in results[len(self._head) :]:
            if result.upper not in self._walks:
                self._walks[result.upper] = self._pool.submit(self._walk, result.upper)

    def wait(self) -> None:
        """Wait for the end of `also`, if that was begun. Raises what it raised."""
        if self._begun is not None:
            self._begun.result()

    def diffs(self, results: Sequence[Result]) -> list[Source]:
        """Diffs with the effect of all results of the stage, lowest first.

        What was not read ahead is read now. Raises as `walk_upper`.
        """
        head = [self._folded.result()] if self._folded else []
        return head + [self._read(result.upper) for result in results[len(self._head) :]]

    def _read(self, upper: Path) -> Source:
        walk = self._walks.get(upper)
        return walk_upper(upper) if walk is None else walk.result()

    def _fold(self) -> Source:
        return one_diff([self._walk(result.upper) for result in self._head])

    def _walk(self, upper: Path) -> Source:
        with cancelling.by(self._stop):
            return walk_upper(upper)
