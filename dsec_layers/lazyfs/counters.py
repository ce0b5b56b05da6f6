"""Counters that many threads add to."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from dsec_layers.lazyfs.protocol import Counts

_NAMES = Counts.__struct_fields__


class Counters:
    """The fields of `Counts`, growing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(_NAMES, 0)

    def add(self, **amounts: int) -> None:
        """Add to the named counters. Raises KeyError for a name that is not a field of Counts."""
        values = self._values
        with self._lock:
            for name, amount in amounts.items():
                values[name] += amount

    def counts(self) -> Counts:
        """The values at one moment."""
        with self._lock:
            return Counts(**self._values)


def total(counts: Iterable[Counts]) -> Counts:
    """The sum, field by field."""
    listed = list(counts)
    return Counts(**{name: sum(getattr(each, name) for each in listed) for name in _NAMES})
