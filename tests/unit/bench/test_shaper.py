"""The shaped store delays and counts what it should, on a clock of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.shaper import Counters, Line, ShapedStore, open_shaped
from dsec_layers.errors import InvalidInputError
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.urls import open_store
from tests.support.stores import put_bytes


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "store", create=True)


def test_latency_and_bandwidth(store: DirectoryStore) -> None:
    time, counters = FakeTime(), Counters()
    line = Line(0.5, 1000, counters, clock=lambda: time.now, sleep=time.sleep)
    shaped = ShapedStore("x", store, line)
    blob = put_bytes(shaped, b"x" * 2000)
    assert time.now == 0.5 + 2
    shaped.read(blob, 0, 500)
    assert time.now == 2.5 + 0.5 + 0.5
    assert b"".join(shaped.stream(blob)) == b"x" * 2000
    assert time.now == 3.5 + 0.5 + 2
    shaped.has(blob)
    assert time.now == 6.5
    assert (counters.requests, counters.bytes) == (4, 4500)
    counters.close()


def test_all_threads_share_the_line() -> None:
    now, slept, counters = 0.0, list[float](), Counters()
    line = Line(0, 1000, counters, clock=lambda: now, sleep=slept.append)
    for _ in range(3):  # at the same moment
        line.carry(1000)
    assert slept == [1.0, 2.0, 3.0]
    counters.close()


def test_processes_count_together(tmp_path: Path) -> None:
    one, other = Counters(tmp_path / "counters"), Counters(tmp_path / "counters")
    one.add(1, 10)
    other.add(2, 20)
    assert (one.requests, one.bytes) == (other.requests, other.bytes) == (3, 30)
    one.close()
    other.close()


def test_by_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSEC_STORE_PLUGINS", "bench.shaper")
    url = f"shaped+dir://{tmp_path}/store?latency_ms=0.01&mb_s=1000&counters={tmp_path}/counters"
    store = open_store(url, create=True)
    assert store.url == url
    blob = put_bytes(store, b"data")
    assert open_store(f"dir://{tmp_path}/store").read(blob) == b"data"
    counters = Counters(tmp_path / "counters")
    assert (counters.requests, counters.bytes) == (1, 4)
    counters.close()
    with pytest.raises(InvalidInputError, match="speed"):
        open_shaped(f"shaped+dir://{tmp_path}/store?speed=1")
