"""A sandbox in the edge's memory: its row of the journal, and what lives beside it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from dsec_runtime.edge.journal import Row
from dsec_runtime.edge.transitions import end_of_life
from dsec_runtime.spec import ExecInfo, Lifetime, SandboxInfo, State

if TYPE_CHECKING:
    from dsec_runtime.channel import Channel

QUIET_S: Final = 5.0
_COMMANDS: Final = 256


class Entry:
    """`lock` is held while its state changes, `ready` is set when its creation is over.

    `active` requests are under way, of which `short` ones are to end before it is frozen.
    """

    __slots__ = (
        "active",
        "channel",
        "commands",
        "error",
        "lock",
        "oom_kills",
        "ready",
        "row",
        "short",
        "still",
    )

    def __init__(self, row: Row) -> None:
        self.row = row
        self.lock = asyncio.Lock()
        self.ready = asyncio.Event()
        self.error: BaseException | None = None  # why the creation failed
        self.channel: Channel | None = None
        self.commands: OrderedDict[str, ExecInfo] = OrderedDict()  # the last that were started
        self.active = 0
        self.short = 0
        self.still = asyncio.Event()  # no short request is under way
        self.still.set()
        self.oom_kills = 0  # that have been told already

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self.row.state

    def remember(self, command: ExecInfo) -> None:
        """Keep what the agent does not know of a command."""
        self.commands[command.id] = command
        if len(self.commands) > _COMMANDS:
            self.commands.popitem(last=False)

    def begin(self, *, short: bool) -> None:
        """A request begins."""
        self.active += 1
        if short:
            self.short += 1
            self.still.clear()

    def finish(self, now_s: float, *, short: bool) -> None:
        """A request has ended; idling begins anew."""
        self.active -= 1
        self.row.used_s = now_s
        if short:
            self.short -= 1
            if not self.short:
                self.still.set()

    async def quiet(self) -> None:
        """Wait until no short request is under way; not for ever."""
        try:
            async with asyncio.timeout(QUIET_S):
                await self.still.wait()
        except TimeoutError:
            return

    def deadline(self, default: Lifetime, now_s: float) -> tuple[float, str] | None:
        """When it is to be ended, and why; `default` is for what its specification leaves open.

        While a request is under way it does not idle.
        """
        row, wish = self.row, self.row.spec.lifetime
        lifetime = Lifetime(
            idle_s=wish.idle_s or default.idle_s,
            age_s=wish.age_s or default.age_s,
            paused_s=wish.paused_s or default.paused_s,
        )
        return end_of_life(
            lifetime,
            row.state,
            created_s=row.created_s,
            changed_s=row.changed_s,
            used_s=now_s if self.active else row.used_s,
        )

    def info(self) -> SandboxInfo:
        """What the API tells of it."""
        row = self.row
        return SandboxInfo(
            id=row.id,
            spec=row.spec,
            state=row.state,
            digests=row.running.digests if row.running else (),
            created_s=row.created_s,
            changed_s=row.changed_s,
            used_s=row.used_s,
            ends_s=row.ends_s,
            reason=row.reason,
        )
