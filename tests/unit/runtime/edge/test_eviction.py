"""What is paused when memory is short, in which order, and how many at a time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.pressure import Load
from dsec_runtime.edge.principal import LOCAL
from dsec_runtime.edge.service import Edge
from dsec_runtime.spec import CpuClass, State
from dsec_runtime.tiers.tier import Running
from tests.support.edge_doubles import SPEC, HandClock, TierDouble, edge_over

SHORT = Load(available_bytes=1, memory_pressure=0.0)


async def made(edge: Edge, cpu_class: CpuClass = CpuClass.LS) -> Entry:
    return await edge.creating.create(
        LOCAL, msgspec.structs.replace(SPEC, cpu_class=cpu_class), None
    )


async def swept(edge: Edge) -> None:
    await edge.sweep.once()
    await edge.driving.settled()


async def test_best_effort_goes_first_then_who_was_not_used_for_longest(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        old = await made(edge)
        clock.pass_(5)
        young, effort = await made(edge), await made(edge, CpuClass.BE)
        clock.pass_(60)
        used = await made(edge)
        await swept(edge)
        assert tier.count("pause") == 0  # there is plenty
        edge.admission.measure = lambda: SHORT
        order = []
        for _ in range(5):
            await swept(edge)
            paused = [it for it in (old, young, effort, used) if it.state is State.PAUSED]
            order += [it for it in paused if it not in order]
        assert order == [effort, old, young]
        assert [it.kind for it in edge.events.kept(old.row.id)][-1] == "evicted"


@pytest.mark.parametrize("how", ["request", "off"])
async def test_what_is_in_use_is_left_alone(
    tier: TierDouble, clock: HandClock, tmp_path: Path, how: str
) -> None:
    settings = {"evict_idle_s": 0.0} if how == "off" else {}
    async with edge_over(tier, tmp_path, clock, **settings) as edge:
        entry = await made(edge)
        clock.pass_(100)
        edge.admission.measure = lambda: SHORT
        if how == "off":
            await swept(edge)
        else:
            async with edge.life.using(entry):
                await edge.sweep.once()
        assert tier.count("pause") == 0


async def test_where_it_gives_nothing_back_the_others_go_on(
    tier: TierDouble, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        TierDouble, "pause", lambda self, running: self._ask("pause", running.id) or 0
    )
    async with edge_over(tier, tmp_path, clock) as edge:
        for _ in range(3):
            await made(edge)
        clock.pass_(100)
        edge.admission.measure = lambda: SHORT
        for _ in range(3):
            await swept(edge)
        assert tier.count("pause") == 1
        clock.pass_(60)
        await swept(edge)
        assert tier.count("pause") == 2


async def test_many_pauses_at_once_are_few_at_a_time(
    tier: TierDouble, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that wait can be used."""
    going, entered = threading.Event(), threading.Semaphore(0)

    def slow(_tier: TierDouble, _running: Running) -> int:
        entered.release()
        going.wait()
        return 0

    monkeypatch.setattr(TierDouble, "pause", slow)
    async with edge_over(tier, tmp_path, clock, pauses=2) as edge:
        entries = [await made(edge) for _ in range(6)]
        pausing = [asyncio.create_task(edge.life.pause(entry)) for entry in entries]
        for _ in range(2):
            await asyncio.to_thread(entered.acquire)
        states = [entry.state for entry in entries]
        assert states.count(State.PAUSING) == 2
        waiting = entries[states.index(State.RUNNING)]
        async with edge.life.using(waiting):
            going.set()
        await asyncio.gather(*pausing)
        assert {entry.state for entry in entries} == {State.PAUSED}
