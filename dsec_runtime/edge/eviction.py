"""When memory is short, sandboxes that nobody uses are paused, before the kernel has to kill.

Best effort goes first, then whoever has not been used for longest; one at a time, because what that
gives back shows in the next look. Any request to such a sandbox resumes it, as ever.
"""

from __future__ import annotations

from typing import Final

import structlog

from dsec_runtime.edge.admission import Admission
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.life import Life
from dsec_runtime.edge.sandboxes import Sandboxes
from dsec_runtime.errors import SandboxError
from dsec_runtime.spec import MIB, CpuClass, State

_log = structlog.get_logger("dsec.edge.eviction")
_WORTH_BYTES: Final = MIB  # less is no reason to stop the next one too
_REST_S: Final = 60.0


class Eviction:
    """`once` is part of each sweep."""

    def __init__(self, sandboxes: Sandboxes, life: Life, admission: Admission) -> None:
        self._sandboxes = sandboxes
        self._life = life
        self._admission = admission
        self._is_busy = False
        self._rests_until_s = 0.0

    def once(self, now_s: float) -> None:
        """Begin to pause one, if memory is short and one idles."""
        idle_s = self._sandboxes.config.evict_idle_s
        if self._is_busy or not idle_s or now_s < self._rests_until_s:
            return
        if not self._admission.is_short:
            return
        found = [it for it in self._sandboxes.entries.values() if _idles(it, now_s - idle_s)]
        if found:
            self._is_busy = True
            self._life.driving.spawn(self._evict(min(found, key=_rank), now_s))

    async def _evict(self, entry: Entry, now_s: float) -> None:
        try:
            freed = await self._life.pause(entry)
        except SandboxError as error:
            _log.warning("not-evicted", sandbox=entry.row.id, reason=error.message)
        else:
            self._sandboxes.record(entry, "evicted", None, {"freed_bytes": freed})
            if freed < _WORTH_BYTES:  # as without swap
                self._rests_until_s = now_s + _REST_S
        finally:
            self._is_busy = False


def _idles(entry: Entry, since_s: float) -> bool:
    is_free = entry.state is State.RUNNING and not entry.active and not entry.lock.locked()
    return is_free and entry.row.used_s <= since_s


def _rank(entry: Entry) -> tuple[bool, float]:
    return entry.row.spec.cpu_class is not CpuClass.BE, entry.row.used_s
