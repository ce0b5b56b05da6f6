"""Fetching ahead of whoever reads on and on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.streams import Share, StreamLimits, Streams
from tests.support.lazy import BLOCK, Rig, device_bytes, read

CHUNKS = 64
LIMITS = StreamLimits(
    begin_bytes=2 * BLOCK, first_bytes=2 * BLOCK, most_bytes=16 * BLOCK, all_bytes=24 * BLOCK
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.fetcher.close()


@pytest.fixture
def device(rig: Rig) -> LayerDevice:
    return rig.device(device_bytes(CHUNKS), [BLOCK] * CHUNKS)


class Noted:
    """Streams over a layer, and what they have asked for."""

    def __init__(self, device: LayerDevice, share: Share | None = None) -> None:
        self.asked: list[int] = []
        self.streams = Streams(device.layer, self._fetch, share or Share(LIMITS))

    def _fetch(self, _: object, indexes: list[int]) -> None:
        self.asked += indexes

    def read(self, first: int, last: int, *, missed: bool = True) -> list[int]:
        """What is asked for when these chunks are read."""
        self.asked = []
        self.streams.read(range(first, last + 1), missed=missed)
        return sorted(self.asked)


def test_the_second_read_of_a_stream_is_foreseen(device: LayerDevice) -> None:
    noted = Noted(device)
    assert noted.read(0, 1) == []
    assert noted.read(2, 3) == [4, 5]
    assert noted.read(20, 21) == []


def test_a_short_stream_fetches_nothing_ahead(device: LayerDevice) -> None:
    noted = Noted(device, Share(replace(LIMITS, begin_bytes=6 * BLOCK)))
    assert noted.read(0, 1) == []
    assert noted.read(2, 3) == []
    assert noted.read(4, 5) == [6, 7]


def test_reads_that_meet_within_a_chunk_are_one_stream(device: LayerDevice) -> None:
    noted = Noted(device)
    assert noted.read(0, 1) == []
    assert noted.read(1, 3) == [4, 5]


def test_the_window_doubles_at_each_mark_up_to_its_limit(device: LayerDevice) -> None:
    noted = Noted(device)
    noted.read(0, 0)
    assert noted.read(1, 1) == [2, 3]
    assert noted.read(2, 2, missed=False) == [4, 5, 6]
    assert noted.read(3, 3, missed=False) == []  # no mark
    assert noted.read(4, 4, missed=False) == list(range(7, 13))
    assert noted.read(7, 7, missed=False) == list(range(13, 24))
    assert noted.read(13, 13, missed=False) == list(range(24, 30))  # 16 is the most


def test_a_reader_that_overtakes_its_window_is_still_one_stream(device: LayerDevice) -> None:
    noted = Noted(device)
    noted.read(0, 0)
    assert noted.read(1, 1) == [2, 3]
    assert noted.read(2, 5) == [6, 7, 8, 9]
    assert noted.read(6, 6) == list(range(10, 15))


def test_the_end_of_the_device_is_the_end(device: LayerDevice) -> None:
    noted = Noted(device)
    noted.read(CHUNKS - 3, CHUNKS - 3)
    assert noted.read(CHUNKS - 2, CHUNKS - 2) == [CHUNKS - 1]
    assert noted.read(CHUNKS - 1, CHUNKS - 1) == []


def test_many_streams_share_what_may_be_ahead(device: LayerDevice) -> None:
    share = Share(LIMITS)
    noted = [Noted(device, share) for _ in range(12)]
    for each in noted:
        each.read(0, 0)
        each.read(1, 1)
    assert noted[0].read(2, 2) == [4]  # 24 of all for 12: no more than the first window


def test_marks_of_readers_that_went_away_are_forgotten(device: LayerDevice) -> None:
    noted = Noted(device)
    for turn in range(500):
        first = turn * 7 % (CHUNKS - 8)
        noted.read(first, first)
        noted.read(first + 1, first + 1)
    assert len(noted.streams._marks) <= 64
    assert len(noted.streams._ends) <= 64


def test_a_stream_is_read_from_what_was_fetched_ahead(rig: Rig, tmp_path: Path) -> None:
    data = device_bytes(CHUNKS)
    plain = rig.device(data, [BLOCK] * CHUNKS)
    device = LayerDevice(plain.layer, rig.fetcher, share=Share(LIMITS))
    for offset in range(0, len(data), 2 * BLOCK):
        assert read(device, offset, 2 * BLOCK) == data[offset : offset + 2 * BLOCK]
        rig.fetcher.drain()
    counts = device.layer.counters.counts()
    assert counts.fetched_chunks == CHUNKS
    assert counts.cache_misses < CHUNKS // 4
