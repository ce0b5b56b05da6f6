"""So many at a time, and fair among those who ask: nobody's thousand keep another's one waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import NamedTuple


class _Waiting(NamedTuple):
    ticket: int
    come: asyncio.Future[None]


class Turns:
    """A turn that comes free is for whoever of those that wait has the fewest.

    Of those who have as many it is for the one who has waited longest, and everybody's own are
    served in the order in which they came. Belongs to one event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._tickets = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    @contextlib.asynccontextmanager
    async def turn(self, who: str, patience_s: float) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises TimeoutError when none comes in time."""
        await self._take(who, patience_s)
        try:
            yield
        finally:
            self._give_back(who)

    async def _take(self, who: str, patience_s: float) -> None:
        if self._held.total() < self._most:  # then nobody waits
            self._held[who] += 1
            return
        self._tickets += 1
        mine = _Waiting(self._tickets, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(who, deque()).append(mine)
        try:
            async with asyncio.timeout(patience_s):
                await mine.come
        except BaseException:
            if mine.come.done() and not mine.come.cancelled():
                self._give_back(who)  # it came in the moment in which we left
            else:
                self._leave(who, mine)
            raise

    def _leave(self, who: str, mine: _Waiting) -> None:
        self._waiting[who].remove(mine)
        if not self._waiting[who]:
            del self._waiting[who]

    def _give_back(self, who: str) -> None:
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]
        if self._waiting:
            next_ = min(self._waiting, key=lambda it: (self._held[it], self._waiting[it][0].ticket))
            first = self._waiting[next_][0]
            self._leave(next_, first)
            self._held[next_] += 1
            first.come.set_result(None)
