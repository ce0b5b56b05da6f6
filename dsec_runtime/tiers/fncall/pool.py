"""The pool at work: containers are made, lent to one task at a time, cleaned, proved, destroyed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from dsec_runtime.channel.channel import Channel
from dsec_runtime.errors import (
    InfrastructureError,
    OverloadedError,
    SandboxError,
    UnknownSandboxError,
)
from dsec_runtime.tiers.fncall.ledger import End, Hand, Ledger, Start, Step
from dsec_runtime.tiers.fncall.members import PREFIX, Kindred, Made
from dsec_runtime.tiers.fncall.settings import FncallSettings
from dsec_runtime.tiers.tier import Running

T = TypeVar("T")
_log = logging.getLogger(__name__)
_TICK_S: Final = 1.0
_PATIENCE_S: Final = 10.0  # between two tries to destroy what does not go


class Makers(Protocol):
    """What the pool needs of `members.Members`."""

    def make(self, member: str, kindred: Kindred) -> Running:
        """See Members."""

    def observed(self, running: Running) -> Made:
        """See Members."""

    def difference(self, made: Made) -> str | None:
        """See Members."""

    def lives(self, made: Made) -> bool:
        """See Members."""

    def destroy(self, member: str) -> None:
        """See Members."""


class Call(Protocol):
    """Runs a blocking call in a thread."""

    def __call__(self, function: Callable[..., T], /, *args: object) -> Awaitable[T]:
        """What `function` returns or raises."""


class Member:
    """A container of the pool, lent to whoever has it from `Pool.claim`."""

    def __init__(self, made: Made, channel: Channel) -> None:
        self.made = made
        self.channel = channel
        self.tasks = 0

    @property
    def id(self) -> str:
        """Its id on the node."""
        return self.made.running.id


class Pool:
    """Belongs to one event loop. `admit` raises OverloadedError when no container may be made.

    `note_discard` is told when one goes because it is not clean.
    """

    def __init__(
        self,
        settings: FncallSettings,
        makers: Makers,
        call: Call,
        connect: Callable[[str], Awaitable[Channel]] = Channel.connect,
        admit: Callable[[], None] = lambda: None,
        note_discard: Callable[[], object] = lambda: None,
    ) -> None:
        self.settings = settings
        self._makers = makers
        self._call = call
        self._connect = connect
        self._admit = admit
        self._note_discard = note_discard
        self._ledger: Ledger[Kindred] = Ledger(settings)
        self._members: dict[str, Member] = {}
        self._waiting: dict[int, asyncio.Future[Member]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def live(self) -> int:
        """Containers that there are, also half-made ones."""
        return self._ledger.live

    def counts(self) -> dict[str, int]:
        """Containers by what they do, and the calls that wait."""
        return {**self._ledger.counts(), "waiting": self._ledger.waiting}

    async def claim(self, kindred: Kindred) -> Member:
        """A clean container that nobody else has, until `give_back`.

        Raises OverloadedError when none comes free in time, and what making one raises.
        """
        if self._ledger.waiting >= self.settings.waiting:
            raise overloaded(f"{self._ledger.waiting} calls wait already")
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())
        while True:
            member = await self._next(kindred)
            if self._makers.lives(member.made):
                return member
            self._ledger.back(member.id, _now(), clean=False)
            self._discard(member.id)
            self._act()

    async def _next(self, kindred: Kindred) -> Member:
        future: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        ticket = self._ledger.ask(kindred, _now())
        self._waiting[ticket] = future
        self._act()
        try:
            async with asyncio.timeout(self.settings.patience_s):
                return await future
        except TimeoutError as error:
            patience = f"{self.settings.patience_s:g} s"
            raise overloaded(f"no container came free in {patience}") from error
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._ledger.back(future.result().id, _now(), clean=True)  # handed in vain
                self._spawn(self._later())
            raise
        finally:
            self._waiting.pop(ticket, None)
            self._ledger.cancel(ticket)

    def give_back(self, member: Member, command: str) -> None:
        """The task is over. `command` is killed with all it started; cleaning goes on without us.

        It may run still, or never have run.
        """
        self._spawn(self._recycle(member, command))

    async def close(self) -> None:
        """Destroy all, once their tasks are over."""
        self._ledger.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(overloaded("the edge is about to end"))
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        self._act()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # what the ledger has decided

    def _act(self) -> None:
        for step in self._ledger.plan(_now()):
            self._do(step)

    def _do(self, step: Step[Kindred]) -> None:
        match step:
            case Hand(ticket, name):
                future = self._waiting.pop(ticket)
                if future.done():  # its caller left in this very moment
                    self._ledger.back(name, _now(), clean=True)
                    self._spawn(self._later())
                else:
                    future.set_result(self._members[name])
            case Start(kindred):
                self._spawn(self._start(kindred))
            case End(name):
                self._discard(name)

    async def _later(self) -> None:
        self._act()

    async def _start(self, kindred: Kindred) -> None:
        name = PREFIX + secrets.token_hex(8)
        try:
            self._admit()
            running = await self._call(self._makers.make, name, kindred)
        except Exception as error:  # what was begun must end in the book
            self._fail(kindred, _ours(error))
            return
        try:
            self._members[name] = await self._ready(running)
        except Exception as error:  # as above
            await self._destroy(name)
            self._fail(kindred, InfrastructureError(_ours(error).message))
            return
        self._ledger.started(kindred, name, _now())
        self._act()

    async def _ready(self, running: Running) -> Member:
        channel = await self._connect(running.socket)
        try:
            return Member(await self._call(self._makers.observed, running), channel)
        except BaseException:
            channel.close()
            raise

    def _fail(self, kindred: Kindred, error: SandboxError) -> None:
        ticket = self._ledger.failed(kindred, _now())
        future = self._waiting.pop(ticket, None) if ticket is not None else None
        if future is not None and not future.done():
            future.set_exception(error)
        _log.warning("no container for tasks: %s", error.message)
        self._act()

    async def _recycle(self, member: Member, command: str) -> None:
        why = await self._reset(member, command)
        member.tasks += 1
        if why is not None:
            self._note_discard()
            _log.info("%s is not used again: %s", member.id, why)
        clean = why is None and member.tasks < self.settings.tasks
        self._ledger.back(member.id, _now(), clean=clean)
        if not clean:
            self._discard(member.id)
        self._act()

    async def _reset(self, member: Member, command: str) -> str | None:
        """Kill what is left of a task, clean, and compare; why it cannot be used again."""
        try:
            with contextlib.suppress(UnknownSandboxError):  # it was never started
                await member.channel.kill(command)
                await member.channel.forget(command)
            return await self._call(self._makers.difference, member.made)
        except Exception as error:  # any doubt is enough
            return _ours(error).message

    def _discard(self, name: str) -> None:
        self._spawn(self._finish(name))

    async def _finish(self, name: str) -> None:
        member = self._members.pop(name)
        member.channel.close()
        member.made.traces.close()
        await self._destroy(name)
        self._ledger.ended(name)
        self._act()

    async def _destroy(self, name: str) -> None:
        """Try until it is gone: as long as it is there it counts."""
        while True:
            try:
                await self._call(self._makers.destroy, name)
            except Exception as error:  # it is there until it is not
                _log.error("%s cannot be destroyed: %s", name, _ours(error).message)
                if self._ticking is None or self._ticking.done():
                    return  # we end; the next start removes it
                await asyncio.sleep(_PATIENCE_S)
            else:
                return

    async def _tick(self) -> None:
        """Time goes by: what is idle shrinks."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._act()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a container of the pool is out of hand", exc_info=error)


def _ours(error: Exception) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    _log.error("a bug of the pool or below", exc_info=error)
    return InfrastructureError(f"the edge failed at this: {error}")


def overloaded(message: str) -> OverloadedError:
    """The error for a task that finds no room."""
    return OverloadedError(
        message, hint="try again in a while, or elsewhere", detail={"retry_after_s": 1.0}
    )


_now = time.monotonic
