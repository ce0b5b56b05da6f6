"""Creation: once for a key, within its time, or nothing at all."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.edge.principal import LOCAL, Principal
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import (
    CreationFailedError,
    InvalidRequestError,
    OverloadedError,
    RequestTimeoutError,
    StateConflictError,
    UnsupportedError,
)
from dsec_runtime.messages import ForkRequest
from dsec_runtime.spec import Environment, NetworkRule, SandboxSpec, State, Tier
from tests.support.edge_doubles import SPEC, HandClock, TierDouble, edge_over

OTHER = msgspec.structs.replace(SPEC, labels={"a": "b"})


async def test_a_sandbox_runs_and_is_remembered(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, None)
        assert entry.info().state is State.RUNNING
        assert entry.info().digests == ("sha256:a", "sha256:b")
        (row,) = edge.sandboxes.journal.rows()
        assert row.running == entry.row.running


async def test_the_same_key_is_the_same_sandbox(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        create = edge.creating.create
        first, second = await asyncio.gather(create(LOCAL, SPEC, "k"), create(LOCAL, SPEC, "k"))
        third = await create(LOCAL, SPEC, "k")
        other = await create(Principal("you"), SPEC, "k")
        assert first is second is third is not other
        assert tier.count("create") == 2


async def test_a_key_of_another_request_is_a_conflict(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, "k")
        with pytest.raises(StateConflictError, match="another request"):
            await edge.creating.create(LOCAL, OTHER, "k")
        await edge.life.stop(entry, "over")
        assert await edge.creating.create(LOCAL, SPEC, "k") is entry  # told that it has ended
        assert tier.count("create") == 1


async def test_a_failed_creation_leaves_nothing_and_can_be_tried_again(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        tier.fails = {"create"}
        with pytest.raises(CreationFailedError):
            await edge.creating.create(LOCAL, SPEC, "k")
        assert (edge.sandboxes.live, list(edge.sandboxes.journal.rows())) == (0, [])
        assert tier.count("destroy") == 1
        tier.fails = set()
        assert (await edge.creating.create(LOCAL, SPEC, "k")).state is State.RUNNING


async def test_one_that_takes_too_long_is_removed(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        tier.gate = threading.Event()
        with pytest.raises(RequestTimeoutError):
            await edge.creating.create(LOCAL, SPEC, "k", timeout_s=0.01)
        tier.gate.set()
        await edge.driving.settled()
        assert tier.processes == {}
        assert edge.sandboxes.live == 0


async def test_a_caller_that_leaves_finds_it_by_its_key(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        tier.gate = threading.Event()
        asked = asyncio.create_task(edge.creating.create(LOCAL, SPEC, "k"))
        await asyncio.to_thread(tier.entered.wait)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        tier.gate.set()
        entry = await edge.creating.create(LOCAL, SPEC, "k")
        assert entry.state is State.RUNNING
        assert tier.count("create") == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tier": Tier.VM}, UnsupportedError),
        ({"network": (NetworkRule(service="pypi"),)}, UnsupportedError),
        ({"network": (NetworkRule(allow=False),)}, InvalidRequestError),
        ({"environment": Environment()}, InvalidRequestError),
        ({"environment": Environment(reference="a", image="b")}, InvalidRequestError),
    ],
)
async def test_what_cannot_be_is_refused_at_once(
    tier: TierDouble,
    clock: HandClock,
    tmp_path: Path,
    changes: dict[str, object],
    error: type[Exception],
) -> None:
    spec: SandboxSpec = msgspec.structs.replace(SPEC, **changes)
    async with edge_over(tier, tmp_path, clock) as edge:
        with pytest.raises(error):
            await edge.creating.create(LOCAL, spec, None)
        assert tier.asked == []


async def test_rules_that_deny_are_kept_by_a_network_that_denies_all(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    spec = msgspec.structs.replace(SPEC, network=(NetworkRule(service="npm", allow=False),))
    async with edge_over(tier, tmp_path, clock) as edge:
        assert (await edge.creating.create(LOCAL, spec, None)).state is State.RUNNING


async def test_a_full_node_says_when_to_come_again(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock, max_sandboxes=1) as edge:
        entry = await edge.creating.create(LOCAL, SPEC, None)
        with pytest.raises(OverloadedError) as refused:
            await edge.creating.create(LOCAL, SPEC, None)
        assert refused.value.detail["retry_after_s"]
        await edge.life.stop(entry, "over")
        await edge.creating.create(LOCAL, SPEC, None)


async def forks(edge: Edge, key: str | None = None) -> list[str]:
    parent = next(iter(edge.sandboxes.entries.values()))
    request = ForkRequest(count=3, labels={"branch": "x"})
    made = await edge.creating.fork(LOCAL, parent, request, key)
    assert all(entry.state is State.RUNNING for entry in made)
    assert all(entry.row.running and entry.row.running.id == entry.row.id for entry in made)
    assert all(entry.row.spec.labels == {"a": "b", "branch": "x"} for entry in made)
    return [entry.row.id for entry in made]


async def test_forks_are_made_once_for_a_key(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        await edge.creating.create(LOCAL, OTHER, None)
        first = await forks(edge, "k")
        assert await forks(edge, "k") == first
        assert set(await forks(edge)).isdisjoint(first)


async def test_of_forks_that_fail_nothing_is_left(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock) as edge:
        await edge.creating.create(LOCAL, OTHER, None)
        tier.fails = {"fork"}
        with pytest.raises(CreationFailedError):
            await forks(edge)
        assert edge.sandboxes.live == 1
