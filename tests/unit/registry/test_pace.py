"""A limit to bandwidth that threads share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import StoreError
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.pace import Pace
from tests.support.stores import put_layer

BASE = Reference.parse("base/debian:12")


def test_it_holds_on_average_and_lets_a_second_s_worth_pass_at_once() -> None:
    now = 0.0
    pace = Pace(1000, clock=lambda: now)
    waits = []
    for amount in (1000, 500, 2500):
        waits.append(pace.wait_s(amount))
        now += waits[-1]
    assert waits == [0, 0.5, 2.5]
    now += 100  # a long pause saves up no more than a second
    assert [pace.wait_s(1000), pace.wait_s(1000)] == [0, 1]


def test_threads_that_come_at_once_wait_one_after_the_other() -> None:
    pace = Pace(1000, clock=lambda: 0.0)
    assert [pace.wait_s(1000) for _ in range(3)] == [0, 1, 2]


def test_every_byte_of_a_copy_counts(tmp_path: Path) -> None:
    asked: list[int] = []

    class Counting(Pace):
        def wait_s(self, amount_bytes: int) -> float:
            asked.append(amount_bytes)
            return 0.0

    source = DirectoryStore.open(tmp_path / "source", create=True)
    there = DirectoryStore.open(tmp_path / "there", create=True)
    put_layer(source, BASE, [b"p" * 3_000_000, b"q" * 1_000_000])
    copied = transfer.copy(BASE, source, there, workers=2, pace=Counting(1))
    assert sum(asked) == copied.moved_bytes > 4_000_000
    transfer.copy(BASE, source, there, workers=2, pace=Counting(1))
    assert sum(asked) == copied.moved_bytes, "nothing moved"


def test_a_copy_that_fails_does_not_wait(tmp_path: Path) -> None:
    class Failing(DirectoryStore):
        def stream(self, blob: Descriptor) -> Iterator[bytes]:
            if blob.size == 1:
                raise StoreError("line cut")
            return super().stream(blob)

    source = Failing.open(tmp_path / "source", create=True)
    there = DirectoryStore.open(tmp_path / "there", create=True)
    put_layer(source, BASE, [b"p" * 1_000_000, b"q"])
    with pytest.raises(StoreError, match="line cut"):
        transfer.copy(BASE, source, there, workers=2, pace=Pace(10))  # a day
