"""Tells at once when the first process of a sandbox ends, by a pidfd each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from dsec_layers.linux.procinfo import start_ticks
from dsec_runtime.tiers.tier import Running


class Watching:
    """`on_end` is called with the id of a sandbox, once, on the loop."""

    def __init__(self, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self._fds: dict[str, int] = {}

    def add(self, running: Running) -> bool:
        """Watch it; False when its first process is gone already."""
        self.remove(running.id)
        try:
            fd = os.pidfd_open(running.pid)
        except ProcessLookupError:
            return False
        if start_ticks(running.pid) != running.pid_start:
            os.close(fd)
            return False
        self._fds[running.id] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, running.id)
        return True

    def remove(self, sandbox: str) -> None:
        """Watch it no more."""
        fd = self._fds.pop(sandbox, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        """Watch nothing any more."""
        for sandbox in list(self._fds):
            self.remove(sandbox)

    def _ended(self, sandbox: str) -> None:
        self.remove(sandbox)
        self._on_end(sandbox)
