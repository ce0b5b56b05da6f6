"""Pause, resume, stop and sudden ends: never in between."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.edge import life
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.principal import LOCAL
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import InfrastructureError, LostError, StateConflictError
from dsec_runtime.spec import MIB, State
from tests.support.edge_doubles import SPEC, HandClock, TierDouble, edge_over

LABELLED = msgspec.structs.replace(SPEC, labels={"job": "17"})


async def made(edge: Edge) -> Entry:
    return await edge.creating.create(LOCAL, LABELLED, None)


async def until(entry: Entry, state: State) -> None:
    while entry.state is not state:
        await asyncio.sleep(0)


async def test_paused_and_resumed_many_times(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        for _ in range(20):
            assert await edge.life.pause(entry) == 5 * MIB
            assert await edge.life.pause(entry) == 0
            assert entry.info().spec.labels == {"job": "17"}
            async with edge.life.using(entry):
                assert entry.state is State.RUNNING
        assert (tier.count("pause"), tier.count("resume")) == (20, 20)


async def test_a_failed_pause_is_taken_back(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        tier.fails = {"pause"}
        with pytest.raises(InfrastructureError, match="pause fails"):
            await edge.life.pause(entry)
        assert entry.state is State.RUNNING
        assert tier.count("resume") == 1


async def test_one_that_can_neither_pause_nor_resume_is_ended(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        tier.fails = {"pause", "resume"}
        with pytest.raises(InfrastructureError):
            await edge.life.pause(entry)
        assert entry.state is State.LOST
        assert tier.processes == {}


async def test_one_that_cannot_be_resumed_is_lost(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        await edge.life.pause(entry)
        tier.fails = {"resume"}
        with pytest.raises(LostError):
            async with edge.life.using(entry):
                pass
        with pytest.raises(LostError, match="could not be resumed"):
            async with edge.life.using(entry):
                pass


async def test_a_pause_waits_for_what_is_short_and_not_for_what_is_long(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        async with edge.life.using(entry):
            async with edge.life.using(entry, short=True):
                pausing = asyncio.create_task(edge.life.pause(entry))
                await until(entry, State.PAUSING)
                assert tier.count("pause") == 0
            await pausing
            assert entry.state is State.PAUSED


async def test_a_first_process_that_ends_is_a_loss_at_once(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry, paused = await made(edge), await made(edge)
        await edge.life.pause(paused)
        for each in (entry, paused):
            tier.processes[each.row.id].send_signal(signal.SIGKILL)
            await until(each, State.LOST)
            assert each.info().reason == "its first process ended"
            with pytest.raises(LostError):
                await edge.life.wake(each)
        await edge.driving.settled()
        assert tier.processes == {}
        assert edge.sandboxes.live == 0


async def test_what_cannot_be_removed_of_a_lost_one_is_removed_later(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        tier.fails = {"destroy"}
        await edge.life.lose(entry, "for a test")
        assert entry.state is State.LOST
        await edge.sweep.once()
        assert tier.processes
        tier.fails = set()
        await edge.sweep.once()
        assert tier.processes == {}


async def test_a_stop_that_fails_is_tried_again_by_the_sweep(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        tier.fails = {"destroy"}
        with pytest.raises(InfrastructureError):
            await edge.life.stop(entry, "asked to")
        assert entry.info().state is State.STOPPING
        with pytest.raises(StateConflictError):
            await edge.life.wake(entry)
        tier.fails = set()
        await edge.sweep.once()
        await edge.driving.settled()
        assert entry.info().state is State.STOPPED
        assert entry.info().reason == "asked to"


async def test_what_has_ended_is_told_so(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        await edge.life.stop(entry, "asked to")
        await edge.life.stop(entry, "again")
        assert tier.count("destroy") == 1
        for work in (edge.life.pause(entry), edge.life.resume(entry), edge.life.wake(entry)):
            with pytest.raises(StateConflictError, match=r"is stopped .*: asked to"):
                await work


async def test_the_channel_is_closed_with_the_sandbox(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        channel = entry.channel
        await edge.life.stop(entry, "over")
        assert entry.channel is None
        assert not getattr(channel, "is_open")  # noqa: B009 - of the double


async def test_a_broken_connection_is_no_loss(
    tier: TierDouble, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the channel takes for a loss is one only when the first process has ended."""
    monkeypatch.setattr(life, "_ENDING_POLLS", 2)
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge)
        first = entry.channel
        with pytest.raises(InfrastructureError) as told:
            async with edge.life.using(entry):
                raise LostError("the channel says so")
        assert type(told.value) is InfrastructureError
        async with edge.life.using(entry) as channel:
            assert channel is not first
        tier.processes[entry.row.id].kill()
        tier.processes[entry.row.id].wait()
        assert isinstance(await edge.life.explain(entry, LostError("again")), LostError)
