"""The pool at work, over containers that are made of nothing: who gets which, and what is left."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
import pytest

from dsec_runtime.channel.channel import Channel
from dsec_runtime.errors import (
    CreationFailedError,
    InfrastructureError,
    LostError,
    OverloadedError,
    UnknownSandboxError,
)
from dsec_runtime.spec import Environment, Limits
from dsec_runtime.tiers.fncall import pool
from dsec_runtime.tiers.fncall.members import Kindred, Made
from dsec_runtime.tiers.fncall.pool import Pool
from dsec_runtime.tiers.fncall.settings import FncallSettings
from dsec_runtime.tiers.fncall.traces import Traces
from dsec_runtime.tiers.tier import Running

T = TypeVar("T")
SETTINGS = FncallSettings(most=2, total=3, spare=0, patience_s=60, waiting=50, tasks=5)
A, B = (Kindred(Environment(reference=f"env/{name}:1"), SETTINGS.filled(Limits())) for name in "ab")


class NoTraces:
    """What is looked at by nobody."""

    def close(self) -> None:
        """Nothing is open."""


class Makers:
    """Containers that are names; `dirty` and `dead` ones are found so."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.most = 0
        self.fails: set[str] = set()
        self.dirty: set[str] = set()
        self.dead: set[str] = set()
        self._lock = threading.Lock()

    def make(self, member: str, kindred: Kindred) -> Running:
        if "make" in self.fails:
            raise CreationFailedError("no room")
        with self._lock:
            self.there.add(member)
            self.most = max(self.most, len(self.there))
        return Running(id=member, socket=member, pid=1, pid_start=1, digests=())

    def observed(self, running: Running) -> Made:
        return Made(running, cast("Traces", NoTraces()))

    def difference(self, made: Made) -> str | None:
        return "a file" if made.running.id in self.dirty else None

    def lives(self, made: Made) -> bool:
        return made.running.id not in self.dead

    def destroy(self, member: str) -> None:
        if "destroy" in self.fails:
            self.fails.discard("destroy")
            raise InfrastructureError("busy")
        self.there.discard(member)


class ChannelDouble:
    """Kills what it is told; `lost` when the agent is gone, `unstarted` when there was no task."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.lost = False
        self.unstarted = False

    async def kill(self, command: str) -> None:
        if self.lost:
            raise LostError("gone")
        if self.unstarted:
            raise UnknownSandboxError("no such command")
        self.killed.append(command)

    async def forget(self, command: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


class World:
    """A pool, what it has made, and threads for it."""

    def __init__(self, settings: FncallSettings = SETTINGS) -> None:
        self.makers = Makers()
        self.channels: dict[str, ChannelDouble] = {}
        self.discards: list[None] = []
        self.pool = Pool(
            settings,
            self.makers,
            self.call,
            self.connect,
            note_discard=lambda: self.discards.append(None),
        )

    async def call(self, function: Callable[..., T], /, *args: object) -> T:
        return await asyncio.to_thread(function, *args)

    async def connect(self, socket: str) -> Channel:
        if "connect" in self.makers.fails:
            raise LostError("it does not answer")
        self.channels[socket] = ChannelDouble()
        return cast("Channel", self.channels[socket])

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self.pool.counts()["busy"] or self.pool.counts()["ending"]:
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        await self.pool.close()
        assert not self.makers.there
        assert self.pool.live == 0


async def test_many_callers_share_few_containers_and_never_one() -> None:
    world = World()
    held: Counter[str] = Counter()

    async def work(kindred: Kindred) -> None:
        member = await world.pool.claim(kindred)
        held[member.id] += 1
        assert held[member.id] == 1
        await asyncio.sleep(0)
        held[member.id] -= 1
        world.pool.give_back(member, "c")

    await asyncio.gather(*(work(A if number % 3 else B) for number in range(45)))
    assert world.makers.most <= SETTINGS.total
    await world.end()


async def test_what_is_not_clean_is_replaced() -> None:
    world = World()
    first = await world.pool.claim(A)
    world.makers.dirty.add(first.id)
    world.pool.give_back(first, "c")
    second = await world.pool.claim(A)
    assert second.id != first.id
    while not world.discards:  # the second is made meanwhile
        await asyncio.sleep(0.001)
    assert world.channels[first.id].killed == ["c"]
    world.pool.give_back(second, "d")
    await world.settled()
    assert len(world.discards) == 1
    assert world.makers.there == {second.id}
    await world.end()


async def test_one_whose_agent_is_gone_is_replaced() -> None:
    world = World()
    first = await world.pool.claim(A)
    world.channels[first.id].lost = True
    world.pool.give_back(first, "c")
    await world.settled()
    assert not world.makers.there
    await world.end()


async def test_one_that_died_while_it_idled_is_handed_to_nobody() -> None:
    world = World()
    first = await world.pool.claim(A)
    world.pool.give_back(first, "c")
    await world.settled()
    world.makers.dead.add(first.id)
    second = await world.pool.claim(A)
    assert second.id != first.id
    world.pool.give_back(second, "c")
    await world.end()


async def test_a_task_that_never_began_leaves_its_container_to_others() -> None:
    world = World()
    first = await world.pool.claim(A)
    world.channels[first.id].unstarted = True
    world.pool.give_back(first, "c")
    await world.settled()
    assert (await world.pool.claim(A)).id == first.id
    world.pool.give_back(first, "c")
    await world.end()


async def test_after_so_many_tasks_it_goes() -> None:
    world = World()
    names = []
    for _ in range(SETTINGS.tasks + 1):
        member = await world.pool.claim(A)
        names.append(member.id)
        world.pool.give_back(member, "c")
        await world.settled()
    assert len(set(names[:-1])) == 1
    assert names[-1] != names[0]
    assert not world.discards
    await world.end()


async def test_what_nobody_foresaw_ends_in_the_book_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    with monkeypatch.context() as patched:
        patched.setattr(world.makers, "make", lambda *_: 1 / 0)
        with pytest.raises(InfrastructureError, match="division"):
            await world.pool.claim(A)
    member = await world.pool.claim(A)
    monkeypatch.setattr(world.makers, "difference", lambda *_: 1 / 0)
    world.pool.give_back(member, "c")
    await world.settled()
    assert len(world.discards) == 1
    await world.end()


async def test_whoever_waits_beside_a_task_waits_on_when_no_more_can_be_made() -> None:
    world = World()
    member = await world.pool.claim(A)
    world.makers.fails.add("make")
    waiting = asyncio.create_task(world.pool.claim(A))
    while world.pool.counts()["starting"] or not world.pool.counts()["waiting"]:
        await asyncio.sleep(0.001)
    world.pool.give_back(member, "c")
    assert (await waiting).id == member.id
    world.pool.give_back(member, "c")
    await world.end()


@pytest.mark.parametrize("what", ["make", "connect"])
async def test_whoever_waits_is_told_that_none_can_be_made(what: str) -> None:
    world = World()
    world.makers.fails.add(what)
    for _ in range(2):
        with pytest.raises(InfrastructureError):
            await world.pool.claim(A)
    world.makers.fails.clear()
    world.pool.give_back(await world.pool.claim(A), "c")
    await world.end()


async def test_what_cannot_be_destroyed_counts_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PATIENCE_S", 0.05)
    world = World(FncallSettings(most=1, total=1, spare=0))
    first = await world.pool.claim(A)
    world.makers.dirty.add(first.id)
    world.makers.fails.add("destroy")
    world.pool.give_back(first, "c")
    second = await world.pool.claim(A)
    assert "destroy" not in world.makers.fails
    assert world.makers.most == 1
    world.pool.give_back(second, "c")
    await world.end()


async def test_callers_that_leave_take_nothing_with_them() -> None:
    world = World()
    member = await world.pool.claim(A)
    waiting = [asyncio.create_task(world.pool.claim(A)) for _ in range(9)]
    await asyncio.sleep(0)
    for task in waiting[:4]:
        task.cancel()
    world.pool.give_back(member, "c")
    for task in waiting[4:]:
        world.pool.give_back(await task, "c")
        task.cancel()
    await world.settled()
    assert world.pool.counts()["waiting"] == 0
    await world.end()


async def test_one_that_is_handed_to_a_caller_who_just_left_is_not_lost() -> None:
    world = World(FncallSettings(most=1, total=1, spare=0))
    member = await world.pool.claim(A)
    waiting = asyncio.create_task(world.pool.claim(A))
    other = asyncio.create_task(world.pool.claim(A))
    await asyncio.sleep(0)
    world.pool.give_back(member, "c")
    while world.pool.counts()["waiting"] > 1:
        await asyncio.sleep(0)
    waiting.cancel()  # it has its container, and has not seen it
    with pytest.raises(asyncio.CancelledError):
        await waiting
    world.pool.give_back(await other, "c")
    await world.end()


async def test_a_queue_that_is_too_long_and_a_wait_too() -> None:
    world = World(FncallSettings(most=1, total=1, waiting=1))
    member = await world.pool.claim(A)
    world.pool.settings = msgspec.structs.replace(world.pool.settings, patience_s=0.05)
    waiting = asyncio.create_task(world.pool.claim(A))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="wait already"):
        await world.pool.claim(A)
    with pytest.raises(OverloadedError, match="came free"):
        await waiting
    world.pool.give_back(member, "c")
    await world.end()


async def test_at_the_end_whoever_waits_is_sent_away() -> None:
    world = World(FncallSettings(most=1, total=1))
    member = await world.pool.claim(A)
    waiting = asyncio.create_task(world.pool.claim(A))
    await asyncio.sleep(0)
    world.pool.give_back(member, "c")
    await world.end()
    with pytest.raises(OverloadedError):
        await waiting
