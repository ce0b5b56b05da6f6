"""How often a store across a network is asked again, and how long between."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")
# The seconds that the other side asked us to wait (0.0 when it named none), or None when an error
# is final.
Judge = Callable[[Exception], float | None]

_ending = threading.Event()


class Stoppable(Protocol):
    """Waits for another side by means of its own."""

    def stop(self) -> None:
        """Let no thread wait any more; called from any thread, more than once."""


_stoppable: weakref.WeakValueDictionary[int, Stoppable] = weakref.WeakValueDictionary()


def give_up() -> None:
    """This process is to end: who waits to ask again fails at once, and nobody asks twice."""
    _ending.set()
    for reference in _stoppable.valuerefs():
        if (each := reference()) is not None:
            each.stop()


def stop_when_given_up(each: Stoppable) -> None:
    """Stop it then, if it still lives."""
    _stoppable[id(each)] = each
    if _ending.is_set():
        each.stop()


class Patience(msgspec.Struct, frozen=True):
    """`attempts` in all, about `first_s` apart, then twice that, at most `most_s`.

    What a server asks for by Retry-After is obeyed up to `most_asked_s`. `sleep` takes the place of
    waiting.
    """

    attempts: int = 6
    first_s: float = 0.2
    most_s: float = 10.0
    most_asked_s: float = 60.0
    sleep: Callable[[float], object] | None = None

    def delay_s(self, number: int, asked_s: float = 0.0) -> float:
        """The wait after the attempt `number`, scattered by half, lest all come back at once."""
        usual = min(self.first_s * 2.0**number, self.most_s) * random.uniform(0.5, 1.5)  # noqa: S311
        return max(usual, min(asked_s, self.most_asked_s))

    def delays(self) -> Iterator[float]:
        """The waits between the attempts, when nothing is asked for."""
        return map(self.delay_s, range(self.attempts - 1))

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
        wait = self.sleep or _ending.wait
        wait(max(delay, min(asked, self.most_asked_s)))
        return not _ending.is_set()
