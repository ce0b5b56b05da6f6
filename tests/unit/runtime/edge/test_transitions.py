"""The table of states, and deadlines."""

from __future__ import annotations

import pytest

from dsec_runtime.edge.transitions import ALLOWED, FINAL, LIVE, end_of_life, sources
from dsec_runtime.spec import Lifetime, State

LIFE = Lifetime(idle_s=10, age_s=100, paused_s=50)


def test_every_state_can_come_to_an_end() -> None:
    for start in State:
        reached, new = {start}, {start}
        while new:
            new = {after for each in new for after in ALLOWED[each]} - reached
            reached |= new
        assert start in FINAL or reached >= FINAL


def test_nothing_follows_an_end() -> None:
    assert not any(ALLOWED[state] for state in FINAL)
    assert LIVE.isdisjoint(FINAL)


def test_whatever_lives_can_be_stopped_and_lost() -> None:
    assert sources(State.STOPPING) == LIVE
    assert sources(State.LOST) == LIVE | {State.STOPPING}


@pytest.mark.parametrize(
    ("state", "ends_s", "why"),
    [
        (State.RUNNING, 40.0, "idle"),
        (State.PAUSED, 70.0, "paused"),
        (State.CREATING, 100.0, "old"),
        (State.PAUSING, 100.0, "old"),
    ],
)
def test_which_limit_counts(state: State, ends_s: float, why: str) -> None:
    found = end_of_life(LIFE, state, created_s=0, changed_s=20, used_s=30)
    assert found is not None
    assert found[0] == ends_s
    assert why in found[1]


def test_no_limit_is_no_end() -> None:
    for state in State:
        assert end_of_life(Lifetime(), state, created_s=0, changed_s=0, used_s=0) is None
