"""Who has which container of the pool, and what is to be done next: decisions without deeds.

A container is starting, idle, busy (with a task or being cleaned) or ending, and counts against
the bounds until its end is over. `plan` decides; whoever carries that out reports back. The call
that waits longest is served first: for it an idle container of another kind may have to go.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from dsec_runtime.tiers.fncall.settings import FncallSettings

K = TypeVar("K", bound=Hashable)
_NEVER: Final = float("-inf")
_REST_S: Final = 1.0


class Hand(NamedTuple):
    """Give this container to that caller."""

    ticket: int
    member: str


class Start(NamedTuple, Generic[K]):
    """Make a container of a kind: `started` or `failed` follows."""

    key: K


class End(NamedTuple):
    """Destroy a container: `ended` follows."""

    member: str


Step = Hand | Start[K] | End


class _Shelf:
    """All containers of a kind. `idle` has when each was used last, the longest ago first."""

    def __init__(self) -> None:
        self.idle: OrderedDict[str, float] = OrderedDict()
        self.busy: set[str] = set()
        self.ending: set[str] = set()
        self.starting = 0
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.used_s = _NEVER
        self.rests_until_s = _NEVER

    @property
    def live(self) -> int:
        return len(self.idle) + len(self.busy) + len(self.ending) + self.starting

    @property
    def unserved(self) -> int:
        return len(self.waiting) - self.starting


class Ledger(Generic[K]):
    """The pool's book. Times are seconds of any clock that does not go back."""

    def __init__(self, bounds: FncallSettings) -> None:
        self._bounds = bounds
        self._shelves: dict[K, _Shelf] = {}
        self._keys: dict[str, K] = {}  # by member
        self._tickets = itertools.count(1)
        self._asked: dict[int, K] = {}
        self._closed = False

    # what happens

    def ask(self, key: K, now_s: float) -> int:
        """A caller wants one; its ticket."""
        ticket = next(self._tickets)
        shelf = self._shelves.setdefault(key, _Shelf())
        shelf.waiting[ticket] = None
        shelf.used_s = now_s
        self._asked[ticket] = key
        return ticket

    def cancel(self, ticket: int) -> None:
        """The caller waits no more."""
        if (key := self._asked.pop(ticket, None)) is not None:
            del self._shelves[key].waiting[ticket]

    def started(self, key: K, member: str, now_s: float) -> None:
        """A new container is ready."""
        shelf = self._shelves[key]
        shelf.starting -= 1
        shelf.idle[member] = now_s
        self._keys[member] = key

    def failed(self, key: K, now_s: float) -> int | None:
        """None could be made; the ticket of who is to be told, who waits no more.

        Where others are that may come free everybody waits on, and none is made for a moment.
        """
        shelf = self._shelves[key]
        shelf.starting -= 1
        shelf.used_s = _NEVER  # nobody is kept ready where nothing can be made
        if shelf.busy or shelf.idle or shelf.starting:
            shelf.rests_until_s = now_s + _REST_S
            return None
        shelf.rests_until_s = _NEVER
        ticket = next(iter(shelf.waiting), None)
        if ticket is not None:
            self.cancel(ticket)
        return ticket

    def back(self, member: str, now_s: float, *, clean: bool) -> None:
        """A task is over. What is not proved clean is never handed out again."""
        shelf = self._shelves[self._keys[member]]
        shelf.busy.remove(member)
        if clean:
            shelf.idle[member] = now_s
        else:
            shelf.ending.add(member)

    def gone(self, member: str) -> None:
        """An idle container was found dead, or is not wanted: it is to be destroyed."""
        shelf = self._shelves[self._keys[member]]
        del shelf.idle[member]
        shelf.ending.add(member)

    def ended(self, member: str) -> None:
        """A container is destroyed, and counts no more."""
        self._shelves[self._keys.pop(member)].ending.remove(member)

    def close(self) -> None:
        """Nothing is handed out and made any more; `plan` ends what is idle."""
        self._closed = True

    # what there is

    @property
    def live(self) -> int:
        """Containers that take up room."""
        return sum(shelf.live for shelf in self._shelves.values())

    @property
    def waiting(self) -> int:
        """Callers that wait."""
        return len(self._asked)

    def counts(self) -> dict[str, int]:
        """Containers by what they do."""
        shelves = self._shelves.values()
        return {
            "starting": sum(it.starting for it in shelves),
            "idle": sum(len(it.idle) for it in shelves),
            "busy": sum(len(it.busy) for it in shelves),
            "ending": sum(len(it.ending) for it in shelves),
        }

    # what to do

    def plan(self, now_s: float) -> list[Step[K]]:
        """What is to be done now. It counts as begun."""
        if self._closed:
            every = [m for it in self._shelves.values() for m in it.idle]
            return [self._end(member) for member in every]
        steps: list[Step[K]] = []
        for key in sorted(self._wanted(), key=self._longest):
            steps += self._serve(key, now_s)
        steps += self._keep_ready(now_s)
        steps += self._shrink(now_s)
        return steps

    def _wanted(self) -> list[K]:
        return [key for key, shelf in self._shelves.items() if shelf.waiting]

    def _longest(self, key: K) -> int:
        return next(iter(self._shelves[key].waiting))

    def _serve(self, key: K, now_s: float) -> Iterator[Step[K]]:
        shelf = self._shelves[key]
        shelf.used_s = now_s
        while shelf.waiting and shelf.idle:
            member, _ = shelf.idle.popitem()  # the warmest
            ticket, _ = shelf.waiting.popitem(last=False)
            del self._asked[ticket]
            shelf.busy.add(member)
            yield Hand(ticket, member)
        if now_s < shelf.rests_until_s:
            return
        while shelf.unserved > 0 and shelf.live < self._bounds.most and self._has_room():
            shelf.starting += 1
            yield Start(key)
        wanted = min(shelf.unserved, self._bounds.most - shelf.live)
        for _ in range(wanted - self._ending()):
            if (other := self._dispensable(shelf)) is None:
                return
            yield self._end(other)

    def _keep_ready(self, now_s: float) -> Iterator[Step[K]]:
        """Replace what works, for the next call, as far as there is room anyway."""
        for key, shelf in self._shelves.items():
            if now_s - shelf.used_s >= self._bounds.idle_s or shelf.waiting:
                continue
            ready = len(shelf.idle) + shelf.starting
            while ready < self._bounds.spare and shelf.live < self._bounds.most:
                if not self._has_room():
                    return
                shelf.starting += 1
                ready += 1
                yield Start(key)

    def _shrink(self, now_s: float) -> Iterator[Step[K]]:
        bounds = self._bounds
        for key, shelf in list(self._shelves.items()):
            in_use = now_s - shelf.used_s < bounds.idle_s
            kept = max(bounds.least, bounds.spare) if in_use else bounds.least
            for member, used_s in list(shelf.idle.items()):
                spell = bounds.idle_s if len(shelf.idle) > kept else bounds.keep_s
                if now_s - used_s >= spell:
                    yield self._end(member)
            if not (shelf.live or shelf.waiting or in_use):
                del self._shelves[key]

    def _has_room(self) -> bool:
        return self.live < self._bounds.total

    def _ending(self) -> int:
        return sum(len(shelf.ending) for shelf in self._shelves.values())

    def _dispensable(self, wanting: _Shelf) -> str | None:
        """The idle container of another kind that was used longest ago."""
        found = [
            next((used_s, member) for member, used_s in shelf.idle.items())
            for shelf in self._shelves.values()
            if shelf is not wanting and shelf.idle
        ]
        return min(found)[1] if found else None

    def _end(self, member: str) -> End:
        self.gone(member)
        return End(member)
