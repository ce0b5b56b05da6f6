"""A second edge over what a first one left without a word."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import BusyError
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.principal import LOCAL
from dsec_runtime.edge.service import Edge
from dsec_runtime.spec import Lifetime, State
from tests.support.edge_doubles import SPEC, HandClock, TierDouble, edge_over

IDLER = msgspec.structs.replace(SPEC, lifetime=Lifetime(idle_s=10), owner="job")


def state_in_journal(edge: Edge, entry: Entry, state: State) -> None:
    """As if the edge had been killed in this state."""
    edge.sandboxes.journal._db.execute(
        "UPDATE sandboxes SET state = ? WHERE id = ?", (state.value, entry.row.id)
    )


async def test_running_and_paused_ones_go_on(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        running = await edge.creating.create(LOCAL, IDLER, "k")
        paused = await edge.creating.create(LOCAL, IDLER, None)
        await edge.life.pause(paused)
    clock.pass_(1000)  # in which no edge was there to be asked
    async with edge_over(tier, tmp_path, clock) as edge:
        await edge.sweep.once()
        await edge.driving.settled()
        found = edge.sandboxes.entries
        assert found[running.row.id].state is State.RUNNING
        assert found[paused.row.id].state is State.PAUSED
        assert found[running.row.id].row.spec == IDLER
        assert (await edge.creating.create(LOCAL, IDLER, "k")).row.id == running.row.id
        clock.pass_(10)
        await edge.sweep.once()
        await edge.driving.settled()
        assert found[running.row.id].state is State.STOPPED
        clock.pass_(600)
        await edge.sweep.once()  # the owner, who never came again
        await edge.driving.settled()
        assert found[paused.row.id].state is State.STOPPED


@pytest.mark.parametrize("state", [State.PAUSING, State.RESUMING])
async def test_one_between_two_states_runs(
    tier: TierDouble, clock: HandClock, tmp_path: Path, state: State
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, None)
        state_in_journal(edge, entry, state)
    async with edge_over(tier, tmp_path, clock) as edge:
        assert edge.sandboxes.entries[entry.row.id].state is State.RUNNING
        assert tier.count("resume") == 1


async def test_a_half_made_one_is_removed_and_its_key_is_free(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, "k")
        state_in_journal(edge, entry, State.CREATING)
    async with edge_over(tier, tmp_path, clock) as edge:
        assert tier.processes == {}
        again = await edge.creating.create(LOCAL, SPEC, "k")
        assert again.row.id != entry.row.id


async def test_a_half_ended_one_is_ended(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, None)
        state_in_journal(edge, entry, State.STOPPING)
    async with edge_over(tier, tmp_path, clock) as edge:
        assert edge.sandboxes.entries[entry.row.id].state is State.STOPPED
        assert tier.processes == {}


async def test_one_that_died_meanwhile_is_lost_and_not_called_running(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, None)
    tier.processes[entry.row.id].send_signal(signal.SIGKILL)
    tier.processes[entry.row.id].wait()
    async with edge_over(tier, tmp_path, clock) as edge:
        found = edge.sandboxes.entries[entry.row.id]
        assert (found.state, tier.count("destroy")) == (State.LOST, 1)
        assert found.info().reason == "it had ended while no edge was there"


async def test_what_no_journal_knows_is_removed(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    tier.left = ["unknown"]
    async with edge_over(tier, tmp_path, clock) as edge:
        assert ("destroy", "unknown") in tier.asked
        entry = await edge.creating.create(LOCAL, SPEC, None)
        assert entry.state is State.RUNNING


async def test_a_home_has_one_edge(tier: TierDouble, clock: HandClock, tmp_path: Path) -> None:
    async with edge_over(tier, tmp_path, clock):
        with pytest.raises(BusyError):
            async with edge_over(tier, tmp_path, clock):
                pass
    async with edge_over(tier, tmp_path, clock):
        pass
