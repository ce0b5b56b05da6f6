"""How often, and how patiently, a store is asked again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently: `attempts` in all, about `first_s` apart, then twice that..."""

    attempts: int = 5
    first_s: float = 0.1
    most_s: float = 2.0

    def delays(self) -> Iterator[float]:
        """The waits between the attempts, each scattered by half."""
        for number in range(self.attempts - 1):
            yield min(self.first_s * 2**number, self.most_s) * random.uniform(0.5, 1.5)  # noqa: S311
