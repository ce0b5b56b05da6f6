"""Asking again: how often, how long between, and what is final."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from dsec_layers.registry import patience
from dsec_layers.registry.patience import Patience


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of other tests is stopped, and nothing stays given up."""
    monkeypatch.setattr(patience, "_ending", threading.Event())
    monkeypatch.setattr(patience, "_stoppable", weakref.WeakValueDictionary())


class Flaky:
    """Fails so many times."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError("line cut")
        return "done"


@pytest.mark.parametrize(("failures", "attempts"), [(0, 1), (3, 4), (5, 6)])
def test_it_is_asked_again_until_it_works(failures: int, attempts: int) -> None:
    flaky, waits = Flaky(failures), list[float]()
    assert Patience(sleep=waits.append).call(flaky, lambda _: 0.0) == "done"
    assert flaky.calls == attempts
    assert len(waits) == failures


def test_not_for_ever() -> None:
    flaky = Flaky(100)
    with pytest.raises(OSError, match="line cut"):
        Patience(attempts=4, sleep=lambda _: None).call(flaky, lambda _: 0.0)
    assert flaky.calls == 4


def test_what_is_final_is_not_asked_again() -> None:
    flaky = Flaky(1)
    with pytest.raises(OSError, match="line cut"):
        Patience().call(flaky, lambda _: None)
    assert flaky.calls == 1


def test_waits_grow_are_scattered_and_have_a_ceiling() -> None:
    delays = list(Patience(attempts=6, first_s=1, most_s=5).delays())
    for delay, middle in zip(delays, (1, 2, 4, 5, 5), strict=True):
        assert middle * 0.5 <= delay <= middle * 1.5


def test_what_a_server_asks_for_is_obeyed_within_bounds() -> None:
    for asked, expected in ((0.0, 0.1), (7.0, 7.0), (9999.0, 60.0)):
        waits: list[float] = []
        patience = Patience(first_s=0.1, sleep=waits.append)
        patience.call(Flaky(1), lambda _, asked=asked: asked)  # type: ignore[misc]
        assert waits == [pytest.approx(expected, rel=0.5)]
        assert waits[0] <= 60


@pytest.mark.usefixtures("alone")
def test_what_waits_by_means_of_its_own_is_stopped() -> None:
    class Waiting:
        stopped = 0

        def stop(self) -> None:
            self.stopped += 1

    early, late, gone = Waiting(), Waiting(), Waiting()
    patience.stop_when_given_up(early)
    patience.stop_when_given_up(gone)
    del gone
    patience.give_up()
    patience.stop_when_given_up(late)
    assert (early.stopped, late.stopped) == (1, 1)


@pytest.mark.usefixtures("alone")
def test_who_waits_when_the_process_is_to_end_fails_at_once() -> None:
    flaky, asked = Flaky(100), threading.Event()

    def judge(_: Exception) -> float:
        asked.set()
        return 60.0

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Patience(most_asked_s=1e9).call, flaky, judge)
        assert asked.wait(60)
        patience.give_up()
        with pytest.raises(OSError, match="line cut"):
            waiting.result(30)
    assert flaky.calls == 1
