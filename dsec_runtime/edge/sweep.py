"""Ends what nobody needs: sandboxes past their deadline, and those of owners that have gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import structlog

from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.eviction import Eviction
from dsec_runtime.edge.life import Life
from dsec_runtime.edge.sandboxes import Sandboxes
from dsec_runtime.edge.transitions import FINAL
from dsec_runtime.spec import State

_log = structlog.get_logger("dsec.edge.sweep")
_PRUNE_EVERY: Final = 60  # sweeps


class Sweep:
    """`once` is a sweep; `run` sweeps for ever."""

    def __init__(self, sandboxes: Sandboxes, life: Life, eviction: Eviction) -> None:
        self._sandboxes = sandboxes
        self._life = life
        self._eviction = eviction
        self._used: dict[str, float] = {}  # as the journal has it
        self._sweeps = 0

    async def run(self) -> None:
        """Sweep at the configured interval; what goes wrong is logged, and the next one comes."""
        while True:
            await asyncio.sleep(self._sandboxes.config.sweep_s)
            try:
                await self.once()
            except Exception:  # the sweep is what keeps a node from filling up
                _log.exception("sweep-failed")

    async def once(self) -> None:
        """End what is due. The ends themselves go on in the background."""
        self._note_use()
        now = self._sandboxes.clock()
        for sandbox in self._sandboxes.journal.due(now):
            self._expire(self._sandboxes.entries[sandbox], now)
        for lease in self._sandboxes.journal.overdue(now):
            for entry in self._owned(lease.principal, lease.owner):
                self._end(entry, f"the lease of its owner {lease.owner} ran out")
        for entry in self._sandboxes.entries.values():
            if entry.state is State.STOPPING and not entry.lock.locked():
                self._end(entry, "")  # what could not be removed before
        self._eviction.once(now)
        await self._life.clean()
        events = self._sandboxes.events
        events.take()
        await asyncio.to_thread(events.write)
        self._sweeps += 1
        if self._sweeps % _PRUNE_EVERY == 0:
            self._sandboxes.prune(now - self._sandboxes.config.keep_ended_s)

    def _expire(self, entry: Entry, now: float) -> None:
        """End it, unless it was used since its deadline was written, or is renewed first."""
        found = entry.deadline(self._sandboxes.config.lifetime, now)
        if found is None or found[0] > now:
            self._sandboxes.set_deadline(entry)
            return
        _, reason = found
        row = entry.row
        if self._sandboxes.journal.expire(row.id, row.version, now, reason):
            self._sandboxes.note_move(entry, State.STOPPING, now, reason)
            self._end(entry, reason)

    def _end(self, entry: Entry, reason: str) -> None:
        if entry.state not in FINAL:
            self._life.driving.spawn(self._life.stop(entry, reason))

    def _owned(self, principal: str, owner: str) -> Iterator[Entry]:
        for entry in self._sandboxes.entries.values():
            if entry.row.principal == principal and entry.row.spec.owner == owner:
                yield entry

    def _note_use(self) -> None:
        """Have the journal know when sandboxes were used last; it is told once a sweep."""
        now_used = {id_: entry.row.used_s for id_, entry in self._sandboxes.entries.items()}
        changed = [
            (used_s, id_) for id_, used_s in now_used.items() if self._used.get(id_) != used_s
        ]
        if changed:
            self._sandboxes.journal.set_used(changed)
        self._used = now_used
