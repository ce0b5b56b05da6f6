"""A pack that another thread writes is the same as one written at once."""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path

import pytest

from dsec_layers.chunks import laterpack
from dsec_layers.chunks.frame import chunk_digest
from dsec_layers.chunks.frames import LostFrameError
from dsec_layers.chunks.laterpack import LaterPack
from dsec_layers.chunks.pack import PackWriter
from dsec_layers.model.manifest import Descriptor

CHUNKS = [random.Random(number).randbytes(1 + number * 7001) for number in range(60)]


def finished(later: LaterPack) -> Descriptor:
    later.end()
    return later.finish()


@pytest.mark.parametrize("batch", [1, 100_000, 1 << 30])
def test_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(laterpack, "_BATCH_BYTES", batch)
    monkeypatch.setattr(laterpack, "_IN_FLIGHT_BYTES", 300_000)
    now, later = PackWriter(tmp_path / "now"), LaterPack(tmp_path / "later")
    for chunk in CHUNKS:
        digest = chunk_digest(chunk)
        offset = now.append(digest, len(chunk), chunk)
        assert later.append(digest, len(chunk), len(chunk), partial(bytes, chunk)) == offset
        assert later.full == now.full
    assert finished(later) == now.finish()
    assert (tmp_path / "later").read_bytes() == (tmp_path / "now").read_bytes()


def test_it_is_not_written_by_the_caller(tmp_path: Path) -> None:
    threads: set[str] = set()

    def get() -> bytes:
        threads.add(threading.current_thread().name)
        return b"chunk"

    later = LaterPack(tmp_path / "later")
    later.append(chunk_digest(b"chunk"), 5, 5, get)
    finished(later)
    assert len(threads) == 1
    assert threading.current_thread().name not in threads


def test_no_more_waits_than_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is held back by a disk that does not keep up, until it does."""
    monkeypatch.setattr(laterpack, "_BATCH_BYTES", 1)
    monkeypatch.setattr(laterpack, "_IN_FLIGHT_BYTES", 10)
    go, taken = threading.Event(), threading.Semaphore(0)
    later = LaterPack(tmp_path / "later")

    def get() -> bytes:
        assert go.wait(30)
        return b"chunk"

    def add() -> None:
        for number in range(10):
            later.append(chunk_digest(b"%d" % number), 5, 5, get)
            taken.release()

    adding = threading.Thread(target=add)
    adding.start()
    assert taken.acquire(timeout=30)
    assert taken.acquire(timeout=30)
    assert not taken.acquire(timeout=0.2)
    go.set()
    adding.join(30)
    assert not adding.is_alive()
    finished(later)


def test_what_fails_there_is_heard_here(tmp_path: Path) -> None:
    def lost() -> bytes:
        raise LostFrameError("lost")

    later = LaterPack(tmp_path / "later")
    later.append(chunk_digest(b"a"), 1, 1, lost)
    with pytest.raises(LostFrameError, match="lost"):
        finished(later)
    later.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_pack_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    later = LaterPack(tmp_path / "later")
    later.append(chunk_digest(b"a"), 1, 1, lambda: b"a")
    later.abandon()
    assert list(tmp_path.iterdir()) == []
