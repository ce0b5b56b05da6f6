"""All sandboxes of the node: the journal and its image in memory, changed together."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec

from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.events import Events
from dsec_runtime.edge.journal import Journal, Row
from dsec_runtime.edge.metrics import Metrics
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.transitions import FINAL
from dsec_runtime.errors import LostError, StateConflictError, UnknownSandboxError
from dsec_runtime.messages import Event
from dsec_runtime.spec import SandboxSpec, State
from dsec_runtime.tiers.tier import Running

Clock = Callable[[], float]
_LASTING = ("created", "state")
Detail = str | int | float | bool | None


class Sandboxes:
    """Entries by id. Nothing here waits: each call is one step of the loop."""

    def __init__(
        self, config: EdgeConfig, journal: Journal, events: Events, metrics: Metrics, clock: Clock
    ) -> None:
        self.config = config
        self.journal = journal
        self.events = events
        self.metrics = metrics
        self.clock = clock
        self.entries: dict[str, Entry] = {}
        self._ended = 0
        metrics.watch_sandboxes(self.count)

    def load(self) -> Iterator[Entry]:
        """Read the journal, at a start; the entries that it has."""
        for row in self.journal.rows():
            entry = self.entries[row.id] = Entry(row)
            entry.ready.set()
            self._ended += entry.state in FINAL
            yield entry

    def add(self, principal: Principal, spec: SandboxSpec, key: str | None, body: bytes) -> Entry:
        """A new one, CREATING."""
        now = self.clock()
        row = Row(
            id=secrets.token_hex(8),
            principal=principal.name,
            spec=spec,
            key=key,
            body_hash=body or None,
            created_s=now,
            changed_s=now,
            used_s=now,
        )
        self.journal.insert(row)
        entry = self.entries[row.id] = Entry(row)
        detail = {"tier": spec.tier.value, "owner": spec.owner}
        self.record(entry, "created", principal, detail)
        return entry

    def drop(self, entry: Entry) -> None:
        """Forget one of which nothing came."""
        self.journal.remove(entry.row.id)
        self._ended -= entry.state in FINAL
        self.entries.pop(entry.row.id, None)
        self.events.forget(entry.row.id)

    def find(self, principal: Principal, sandbox: str) -> Entry:
        """The sandbox of this id, if it is the principal's. Raises UnknownSandboxError."""
        entry = self.entries.get(sandbox)
        if entry is None or not (principal.is_operator or entry.row.principal == principal.name):
            raise UnknownSandboxError(
                f"there is no sandbox {sandbox}", hint="`dsec ps --all` lists those there are"
            )
        return entry

    def visible(self, principal: Principal) -> Iterator[Entry]:
        """All that are the principal's."""
        for entry in self.entries.values():
            if principal.is_operator or entry.row.principal == principal.name:
                yield entry

    @property
    def live(self) -> int:
        """How many take up room on the node."""
        return len(self.entries) - self._ended

    def prune(self, before_s: float) -> None:
        """Forget those that ended before `before_s`."""
        for sandbox in self.journal.prune(before_s):
            self._ended -= self.entries.pop(sandbox, None) is not None
            self.events.forget(sandbox)

    def count(self) -> Mapping[str, int]:
        """How many are in each state."""
        return Counter(entry.state.value for entry in self.entries.values())

    def move(
        self,
        entry: Entry,
        state: State,
        *,
        running: Running | None = None,
        reason: str | None = None,
    ) -> None:
        """Change its state. Raises StateConflictError (LostError) when that is not allowed."""
        now = self.clock()
        if not self.journal.move(entry.row.id, state, now, running=running, reason=reason):
            raise not_possible(entry, f"become {state.value}")
        self.note_move(entry, state, now, reason)
        if running:
            entry.row.running = running
        self.set_deadline(entry)

    def note_move(self, entry: Entry, state: State, now_s: float, reason: str | None) -> None:
        """Follow a change that the journal has made."""
        row = entry.row
        row.state, row.changed_s, row.reason = state, now_s, reason or row.reason
        self._ended += state in FINAL
        self.metrics.changes.labels(state.value).inc()
        self.record(entry, "state", None, {"reason": reason} if reason else {})

    def set_deadline(self, entry: Entry) -> None:
        """Work out its deadline anew and make it durable."""
        row = entry.row
        found = entry.deadline(self.config.lifetime, self.clock())
        ends_s = found[0] if found else None
        if ends_s != row.ends_s and self.journal.renew(row.id, ends_s, row.version):
            row.ends_s, row.version = ends_s, row.version + 1

    def respecify(self, entry: Entry, **changes: object) -> None:
        """Change fields of its specification that may change while it lives."""
        if entry.state in FINAL or entry.state is State.STOPPING:
            raise not_possible(entry, "be changed")
        spec: SandboxSpec = msgspec.structs.replace(entry.row.spec, **changes)
        self.journal.set_spec(entry.row.id, spec)
        entry.row.spec = spec
        self.set_deadline(entry)

    def record(
        self,
        entry: Entry,
        kind: str,
        principal: Principal | None = None,
        detail: Mapping[str, Detail] | None = None,
    ) -> None:
        """A line of its log."""
        self.events.add(
            Event(
                time_s=self.clock(),
                sandbox=entry.row.id,
                kind=kind,
                state=entry.state,
                principal=principal.name if principal else None,
                detail=dict(detail or {}),
            ),
            at_once=kind in _LASTING,
        )


def not_possible(entry: Entry, what: str) -> StateConflictError | LostError:
    """The error for what a sandbox in its state cannot do."""
    row = entry.row
    why = f": {row.reason}" if row.reason else ""
    if row.state is State.LOST:
        return LostError(f"sandbox {row.id} is lost{why}", hint="make a new one")
    return StateConflictError(f"sandbox {row.id} is {row.state.value} and cannot {what}{why}")
