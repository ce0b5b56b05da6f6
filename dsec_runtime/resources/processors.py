"""Which processors a sandbox sees: as many as its limit, the least used of the node's."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable


class Processors:
    """Shares the node's processors out; thread-safe."""

    def __init__(self, available: Iterable[int] | None = None) -> None:
        cpus = os.sched_getaffinity(0) if available is None else available
        self._users = dict.fromkeys(sorted(cpus), 0)
        self._taken: dict[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    @property
    def all(self) -> tuple[int, ...]:
        """The node's."""
        return tuple(self._users)

    def take(self, sandbox: str, cores: float | None) -> tuple[int, ...] | None:
        """The processors of a sandbox with this limit; None when it is not below the node's."""
        wanted = len(self._users) if cores is None else math.ceil(cores)
        if wanted >= len(self._users):
            return None
        with self._lock:
            found = tuple(sorted(sorted(self._users, key=self._users.__getitem__)[:wanted]))
            self._keep(sandbox, found)
        return found

    def know(self, sandbox: str, cpus: tuple[int, ...]) -> None:
        """Count a sandbox that was there before."""
        with self._lock:
            if sandbox not in self._taken:
                self._keep(sandbox, tuple(cpu for cpu in cpus if cpu in self._users))

    def release(self, sandbox: str) -> None:
        """Count it no more."""
        with self._lock:
            for cpu in self._taken.pop(sandbox, ()):
                self._users[cpu] -= 1

    def _keep(self, sandbox: str, cpus: tuple[int, ...]) -> None:
        self._taken[sandbox] = cpus
        for cpu in cpus:
            self._users[cpu] += 1
