"""Whether a store is worth asking: a state machine without clock, threads or input and output.

    closed      requests pass; after `failures` of them in a row it opens
    open        nothing passes until a pause is over; then one probe does: half open
    half open   the probe's success closes it, its failure opens it again for twice as long

A store that fails again soon after it came back has not come back: the pause begins anew from
`first_pause_s` only after as many successes in a row as failures open it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """`failures` in a row open it; pauses grow from `first_pause_s` to `most_pause_s`."""

    failures: int = 3
    first_pause_s: float = 1.0
    most_pause_s: float = 30.0


def _scattered(pause_s: float) -> float:
    """By a quarter, so that the machines of a cluster do not come back all at once."""
    return pause_s * random.uniform(0.75, 1.25)  # noqa: S311


class Breaker:
    """Told what happens to a store, and when; moments are seconds of one clock. Not thread-safe.

    `scatter` turns a pause into the one that is taken.
    """

    def __init__(
        self,
        limits: BreakerLimits = BreakerLimits(),
        scatter: Callable[[float], float] = _scattered,
    ) -> None:
        self.state = State.CLOSED
        self.openings = 0
        self._limits = limits
        self._scatter = scatter
        self._failures = 0
        self._successes = 0
        self._pause_s = 0.0
        self._until = 0.0

    @property
    def passes(self) -> bool:
        """Whether a request may be made."""
        return self.state is State.CLOSED

    @property
    def due(self) -> float | None:
        """When the next probe may be made; None unless it is open."""
        return self._until if self.state is State.OPEN else None

    def probe(self, now: float) -> bool:
        """Whether to make a probe now; whoever is told so must say how it went."""
        if self.state is not State.OPEN or now < self._until:
            return False
        self.state = State.HALF_OPEN
        return True

    def sign_of_life(self, now: float) -> None:
        """An answer has come, too late to be of use: probe now, without waiting for the pause."""
        if self.state is State.OPEN:
            self._until = min(self._until, now)

    def succeeded(self) -> None:
        """The store has answered in time."""
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._successes = 0
        self._failures = 0
        self._successes += 1
        if self._successes >= self._limits.failures:
            self._pause_s = 0.0

    def failed(self, now: float) -> None:
        """A request or a probe has failed, or has not been answered in time."""
        self._successes = 0
        self._failures += 1
        if self.state is State.HALF_OPEN or (
            self.state is State.CLOSED and self._failures >= self._limits.failures
        ):
            self._open(now)

    def give_up(self, now: float) -> None:
        """Open at once: nobody is left who could ask."""
        if self.state is not State.OPEN:
            self._successes = 0
            self._open(now)

    def _open(self, now: float) -> None:
        self.state = State.OPEN
        self.openings += 1
        limits = self._limits
        self._pause_s = min(max(2 * self._pause_s, limits.first_pause_s), limits.most_pause_s)
        self._until = now + self._scatter(self._pause_s)
