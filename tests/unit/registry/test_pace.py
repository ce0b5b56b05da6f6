"""A limit to bandwidth that threads share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.model.reference import Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.pace import Pace
from tests.support.stores import put_layer


def test_pace_holds_on_average_and_lets_a_second_s_worth_pass_at_once() -> None:
    now, slept = 0.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(1000, clock=lambda: now, sleep=sleep)
    pace.carry(1000)
    assert slept == []
    pace.carry(500)
    pace.carry(2500)
    assert slept == [0.5, 2.5]
    now += 100  # a long pause saves up no more than a second
    pace.carry(1000)
    pace.carry(1000)
    assert slept == [0.5, 2.5, 1.0]


def test_threads_that_come_at_once_wait_one_after_the_other() -> None:
    slept: list[float] = []
    pace = Pace(1000, clock=lambda: 0.0, sleep=slept.append)
    for _ in range(3):
        pace.carry(1000)
    assert slept == [1.0, 2.0]


def test_a_copy_waits_for_every_byte_that_moves(tmp_path: Path) -> None:
    source = DirectoryStore.open(tmp_path / "source", create=True)
    reference = Reference.parse("base/debian:12")
    put_layer(source, reference, [b"p" * 3_000_000, b"q" * 1_000_000])
    slept: list[float] = []
    pace = Pace(1e6, clock=lambda: 0.0, sleep=slept.append)
    there = DirectoryStore.open(tmp_path / "there", create=True)
    copied = transfer.copy(reference, source, there, workers=2, pace=pace)
    assert max(slept) == pytest.approx((copied.moved_bytes - 1e6) / 1e6)
    slept.clear()
    transfer.copy(reference, source, there, workers=2, pace=pace)
    assert slept == [], "nothing moves"
