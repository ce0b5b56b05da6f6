"""How often a store across a network is asked again, and how long between."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
# The seconds that the other side asked us to wait (0.0 when it named none), or None when an error
# is final.
Judge = Callable[[Exception], float | None]

_ending = threading.Event()


def give_up() -> None:
    """This process is to end: who waits to ask again fails at once, and nobody asks twice."""
    _ending.set()


def _wait(seconds: float) -> None:
    _ending.wait(seconds)


@dataclass(frozen=True, slots=True)
class Patience:
    """`attempts` in all, about `first_s` apart, then twice that, at most `most_s`.

    What a server asks for by Retry-After is obeyed up to `most_asked_s`.
    """

    attempts: int = 6
    first_s: float = 0.2
    most_s: float = 10.0
    most_asked_s: float = 60.0
    sleep: Callable[[float], None] = _wait

    def delays(self) -> Iterator[float]:
        """The waits between the attempts, each scattered by half, lest all come back at once."""
        for number in range(self.attempts - 1):
            yield min(self.first_s * 2**number, self.most_s) * random.uniform(0.5, 1.5)  # noqa: S311

    def call(self, operation: Callable[[], T], judge: Judge) -> T:
        """What `operation` returns, or its error when that is final or the last.

        It may be called several times: its effect must be the same as that of one call.
        """
        delays = self.delays()
        while True:
            try:
                return operation()
            except Exception as error:
                if not self.again(error, judge, delays):
                    raise

    def again(self, error: Exception, judge: Judge, delays: Iterator[float]) -> bool:
        """Wait before the next attempt; False when there shall be none."""
        asked = judge(error)
        delay = None if asked is None else next(delays, None)
        if asked is None or delay is None:
            return False
        self.sleep(max(delay, min(asked, self.most_asked_s)))
        return not _ending.is_set()
