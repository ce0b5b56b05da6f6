from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from dsec_layers.chunks import frame
from dsec_layers.chunks import pipeline as module
from dsec_layers.chunks.packs import PackSet
from dsec_layers.chunks.pipeline import ChunkPipeline
from dsec_layers.model.manifest import Descriptor


def run(folder: Path, workers: int, *, noise: bool = False) -> list[tuple[str, int]]:
    published: list[tuple[str, int]] = []

    def publish(path: Path, blob: Descriptor) -> None:
        published.append((blob.digest, blob.size))
        path.unlink()

    with PackSet(folder, publish) as packs, ChunkPipeline(packs, workers) as pipeline:
        for number in range(200):
            data = hashlib.shake_128(bytes([number])).digest(16_000) if noise else bytes([number])
            pipeline.emit([data.ljust(16_000, b"."), b"tail"])
        pipeline.drain()
        packs.finish()
    return published


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 50_000)
    monkeypatch.setattr(module, "IN_FLIGHT_BYTES", 300_000)


def test_any_number_of_threads_writes_the_same_packs(tmp_path: Path) -> None:
    assert run(tmp_path, 1) == run(tmp_path, 2) == run(tmp_path, 9)


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other threads stand still until the caller cannot but wait for them."""
    gate = threading.Event()
    waiting: list[int] = []
    encode, deliver = frame.encode_chunk, ChunkPipeline._deliver

    def encode_when_open(plain: bytes) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            gate.wait()
        return encode(plain)

    def open_and_deliver(pipeline: ChunkPipeline) -> None:
        waiting.append(pipeline._waiting_bytes)
        gate.set()
        deliver(pipeline)

    monkeypatch.setattr(module, "encode_chunk", encode_when_open)
    monkeypatch.setattr(ChunkPipeline, "_deliver", open_and_deliver)
    monkeypatch.setattr(module, "IN_FLIGHT_BYTES", 150_000)
    run(tmp_path, 3, noise=True)
    assert 300_000 < max(waiting) <= 300_000 + 50_000 + 16_004


def test_an_error_in_a_thread_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plain: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(module, "encode_chunk", broken)
    before = threading.active_count()
    with pytest.raises(MemoryError):
        run(tmp_path, 2)
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []
