from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.lazyfs.breaker import Breaker, BreakerLimits, State

LIMITS = BreakerLimits(failures=3, first_pause_s=1, most_pause_s=5)


def exact(pause_s: float) -> float:
    return pause_s


def opened(now: float = 0) -> Breaker:
    breaker = Breaker(LIMITS, exact)
    for _ in range(3):
        breaker.failed(now)
    assert breaker.state is State.OPEN
    return breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker(LIMITS, exact)
    for _ in range(5):
        breaker.failed(0)
        breaker.failed(0)
        assert breaker.passes
        breaker.succeeded()
    for _ in range(3):
        breaker.failed(7)
    assert not breaker.passes
    assert breaker.due == 8


def test_one_probe_after_the_pause() -> None:
    breaker = opened()
    assert not breaker.probe(0.9)
    assert breaker.probe(1)
    assert not breaker.probe(1)
    assert breaker.state is State.HALF_OPEN
    assert not breaker.passes
    breaker.succeeded()
    assert breaker.passes
    assert breaker.due is None


def test_pauses_grow_up_to_a_limit() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(5):
        assert breaker.due is not None
        pauses.append(breaker.due - now)
        now = breaker.due
        assert breaker.probe(now)
        breaker.failed(now)
    assert pauses == [1, 2, 4, 5, 5]


def test_a_store_that_flaps_is_left_alone_for_longer_and_one_that_settles_is_forgiven() -> None:
    breaker = opened()
    assert breaker.probe(1)
    breaker.succeeded()
    for _ in range(3):
        breaker.failed(2)
    assert breaker.due == 4  # two seconds
    assert breaker.probe(4)
    for _ in range(3):
        breaker.succeeded()
    for _ in range(3):
        breaker.failed(5)
    assert breaker.due == 6


def test_a_late_answer_brings_the_probe_forward_and_nothing_else() -> None:
    breaker = opened()
    breaker.sign_of_life(0.25)
    assert not breaker.passes
    assert breaker.probe(0.25)
    breaker.sign_of_life(0.5)
    assert breaker.state is State.HALF_OPEN


def test_giving_up_opens_at_once_and_once() -> None:
    breaker = Breaker(LIMITS, exact)
    breaker.give_up(3)
    breaker.give_up(4)
    assert (breaker.due, breaker.openings) == (4, 1)


def test_late_failures_do_not_lengthen_the_pause() -> None:
    breaker = opened()
    breaker.failed(0.9)
    assert breaker.due == 1


def test_pauses_are_scattered() -> None:
    dues = set()
    for _ in range(10):
        breaker = Breaker(LIMITS)
        breaker.give_up(0)
        assert breaker.due == pytest.approx(1, abs=0.25)
        dues.add(breaker.due)
    assert len(dues) > 1


EVENTS = st.sampled_from(["failed", "succeeded", "probe", "sign", "give up", "wait"])


@given(st.lists(EVENTS, max_size=60))
def test_whatever_happens(events: list[str]) -> None:
    """It passes requests only when closed, probes one at a time, and always comes to a probe."""
    breaker, now, probing = Breaker(LIMITS, exact), 0.0, False
    for event in events:
        was = breaker.state
        if event == "wait":
            now += 1
        elif event == "failed":
            breaker.failed(now)
        elif event == "succeeded":
            breaker.succeeded()
            assert breaker.passes
        elif event == "probe" and breaker.probe(now):
            assert was is State.OPEN
            assert breaker.state is State.HALF_OPEN
        elif event == "sign":
            breaker.sign_of_life(now)
            assert breaker.state is was
        elif event == "give up":
            breaker.give_up(now)
            assert breaker.state is State.OPEN
        assert breaker.passes == (breaker.state is State.CLOSED)
        assert (breaker.due is None) == (breaker.state is not State.OPEN)
        assert breaker.due is None or breaker.due - now <= LIMITS.most_pause_s
        probing = breaker.state is State.HALF_OPEN
    if breaker.due is not None:
        assert not probing
        assert breaker.probe(breaker.due)
