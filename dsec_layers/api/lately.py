"""What was found out a moment ago, and need not be asked again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from dsec_layers.registry.condemned import boot_clock

FOR_S: Final = 60.0


class Lately:
    """Names that were noted within the last `FOR_S` seconds. Safe for many threads."""

    def __init__(self, clock: Callable[[], float] = boot_clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the name was noted lately."""
        since = self._since.get(name)
        return since is not None and self._clock() - since < FOR_S

    def note(self, names: Iterable[str]) -> None:
        """These are so now; what is no longer of use is forgotten."""
        now = self._clock()
        with self._lock:
            kept = {name: since for name, since in self._since.items() if now - since < FOR_S}
            self._since = kept | dict.fromkeys(names, now)
