from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dsec_layers.chunks import frame
from dsec_layers.chunks import pipeline as module
from dsec_layers.chunks.packs import PackSet
from dsec_layers.chunks.pipeline import ChunkPipeline
from dsec_layers.model.manifest import Descriptor


def run(folder: Path, workers: int) -> list[tuple[str, int]]:
    published: list[tuple[str, int]] = []

    def publish(path: Path, blob: Descriptor) -> None:
        published.append((blob.digest, blob.size))
        path.unlink()

    with PackSet(folder, publish) as packs, ChunkPipeline(packs, workers) as pipeline:
        for number in range(200):
            pipeline.emit([number.to_bytes(8, "little") * 2000, b"tail"])
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
    """The threads stand still until the emitter is held up."""
    gate = threading.Event()
    waiting: list[int] = []
    encode = frame.encode_chunk

    def slow(plain: bytes) -> bytes:
        gate.wait()
        return encode(plain)

    def deliver(pipeline: ChunkPipeline) -> None:
        waiting.append(pipeline._waiting_bytes)
        gate.set()
        original(pipeline)

    original = ChunkPipeline._deliver
    monkeypatch.setattr(module, "encode_chunk", slow)
    monkeypatch.setattr(ChunkPipeline, "_deliver", deliver)
    run(tmp_path, 2)
    assert max(waiting) <= 300_000 + 50_000 + 16_004


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
