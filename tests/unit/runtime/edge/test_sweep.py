"""Deadlines and leases, on a clock set by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.principal import LOCAL, Principal
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import StateConflictError
from dsec_runtime.spec import Lifetime, State
from tests.support.edge_doubles import SPEC, HandClock, TierDouble, edge_over


async def made(edge: Edge, owner: str | None = None, **limits: float) -> Entry:
    spec = msgspec.structs.replace(SPEC, lifetime=Lifetime(**limits), owner=owner)
    return await edge.creating.create(LOCAL, spec, None)


async def swept(edge: Edge) -> None:
    await edge.sweep.once()
    await edge.driving.settled()


async def test_idling_ends_it_and_use_does_not(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge, idle_s=10)
        for _ in range(5):
            clock.pass_(9)
            async with edge.life.using(entry):
                clock.pass_(60)
                await swept(edge)  # a long request is no idling
            await swept(edge)
        assert entry.state is State.RUNNING
        clock.pass_(10)
        await swept(edge)
        assert (entry.state, entry.info().reason) == (State.STOPPED, "it was idle for 10 s")


async def test_a_paused_sandbox_has_a_limit_of_its_own(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge, idle_s=10, paused_s=100)
        for _ in range(3):
            await edge.life.pause(entry)
            clock.pass_(99)
            await swept(edge)
            assert entry.info().state is State.PAUSED
            await edge.life.resume(entry)
            clock.pass_(9)
            await swept(edge)
            assert entry.info().state is State.RUNNING
        await edge.life.pause(entry)
        clock.pass_(100)
        await swept(edge)
        assert (entry.state, entry.info().reason) == (State.STOPPED, "it was paused for 100 s")


async def test_age_ends_it_in_any_state(tier: TierDouble, clock: HandClock, tmp_path: Path) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry, paused = await made(edge, age_s=50), await made(edge, age_s=50)
        await edge.life.pause(paused)
        clock.pass_(50)
        async with edge.life.using(entry):
            await edge.sweep.once()
        await edge.driving.settled()
        assert {entry.state, paused.state} == {State.STOPPED}


async def test_the_limits_of_the_node_fill_in(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    settings = Lifetime(idle_s=5, paused_s=7)
    async with edge_over(tier, tmp_path, clock, lifetime=settings) as edge:
        entry, own = await made(edge), await made(edge, idle_s=60)
        clock.pass_(5)
        await swept(edge)
        assert (entry.state, own.state) == (State.STOPPED, State.RUNNING)


async def test_a_renewal_before_the_sweep_saves_it_and_one_after_is_refused(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge, age_s=10)
        clock.pass_(11)
        edge.sandboxes.respecify(entry, lifetime=Lifetime(age_s=20))
        await swept(edge)
        assert entry.info().state is State.RUNNING
        clock.pass_(10)
        await edge.sweep.once()  # its end has begun
        with pytest.raises(StateConflictError):
            edge.sandboxes.respecify(entry, lifetime=Lifetime(age_s=99))
        await edge.driving.settled()
        assert entry.info().state is State.STOPPED


async def test_sandboxes_end_with_the_lease_of_their_owner(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        hold = edge.sandboxes.journal.hold
        hold(LOCAL.name, "job", 30, clock())
        mine, other, free = await made(edge, "job"), await made(edge, "else"), await made(edge)
        stranger = await edge.creating.create(Principal("you"), mine.row.spec, None)
        await edge.life.pause(mine)
        clock.pass_(29)
        await swept(edge)
        hold(LOCAL.name, "job", 30, clock())
        clock.pass_(29)
        await swept(edge)
        assert mine.info().state is State.PAUSED
        clock.pass_(1)
        await swept(edge)
        assert mine.info().state is State.STOPPED
        assert "lease of its owner job" in (mine.info().reason or "")
        assert {other.state, free.state, stranger.state} == {State.RUNNING}


async def test_an_owner_who_never_renewed_has_a_lease_too(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await made(edge, "job")
        clock.pass_(3600)
        await swept(edge)
        assert entry.state is State.STOPPED


async def test_ended_ones_are_remembered_for_a_while(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock, keep_ended_s=100.0) as edge:
        entry = await made(edge)
        await edge.life.stop(entry, "over")
        await edge.sweep.once()
        assert list((tmp_path / "edge/events").iterdir())
        clock.pass_(101)
        for _ in range(60):
            await edge.sweep.once()
        assert edge.sandboxes.entries == {}
        assert edge.sandboxes.live == 0
        assert not list((tmp_path / "edge/events").iterdir())
