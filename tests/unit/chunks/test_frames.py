"""Frames of an earlier layer: found when their pack is sound, and the same as made ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dsec_layers.builder.pack import PackedLayer, pack_layer
from dsec_layers.chunks import constants, laterpack, pipeline
from dsec_layers.chunks.frame import chunk_digest, decode_chunk
from dsec_layers.chunks.frames import LostFrameError, StoredFrames
from dsec_layers.chunks.memory import Before
from dsec_layers.chunks.pack import PackWriter
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model.reference import Kind
from dsec_layers.sources.directory import walk
from tests.support.memory_store import MemoryStore


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    for number in range(4):
        (folder / f"file{number}").write_bytes(bytes([number + 1]) * 400_000)
    return folder


def pack(
    tree: Path, folder: Path, store: MemoryStore, frames: StoredFrames | None = None
) -> PackedLayer:
    before = Before(frames)
    return pack_layer(
        walk(tree), kind=Kind.BASE, name="x", store=store, work_dir=folder, before=before
    )


def table_of(store: MemoryStore, layer: PackedLayer) -> ChunkTable:
    return decode_table(store.read(layer.manifest.table), layer.config.table)


def frames_of(store: MemoryStore, layer: PackedLayer) -> StoredFrames:
    return StoredFrames(store, layer.manifest.packs, table_of(store, layer))


def test_what_is_found_is_not_compressed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    layer = pack(tree, tmp_path, store)
    encoded: list[bytes] = []

    def encode(plain: bytes) -> bytes:
        encoded.append(plain)
        return plain

    monkeypatch.setattr(pipeline, "encode_chunk", encode)
    assert pack(tree, tmp_path, MemoryStore(), frames_of(store, layer)).manifest == layer.manifest
    assert encoded == []
    (tree / "file2").write_bytes(b"new")
    pack(tree, tmp_path, MemoryStore(), frames_of(store, layer))
    assert [plain.rstrip(b"\0") for plain in encoded] == [b"new"]


def test_a_frame_is_that_of_its_chunk(tree: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    layer = pack(tree, tmp_path, store)
    frames = frames_of(store, layer)
    for chunk in table_of(store, layer):
        stored = frames.read(chunk.digest)
        assert len(stored) == frames.size(chunk.digest)
        decode_chunk(stored, chunk.length, chunk.digest)
    with pytest.raises(LostFrameError):
        frames.read(chunk_digest(b"another"))


@pytest.mark.parametrize("mishap", ["missing", "damaged"])
def test_a_pack_that_is_not_sound_has_none(tree: Path, tmp_path: Path, mishap: str) -> None:
    store = MemoryStore()
    layer = pack(tree, tmp_path, store)
    frames = frames_of(store, layer)
    (pack_blob,) = layer.manifest.packs
    data = store.read(pack_blob)
    del store.blobs[pack_blob.digest]
    if mishap == "damaged":
        store.blobs[pack_blob.digest] = data[:-1] + bytes([data[-1] ^ 1])
    assert not any(frames.has(chunk.digest) for chunk in table_of(store, layer))
    assert pack(tree, tmp_path, MemoryStore(), frames).manifest == layer.manifest


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The packs that are written; each has a few files of `tree`."""
    paths: list[Path] = []

    class Writer(PackWriter):
        def __init__(self, path: Path) -> None:
            paths.append(path)
            super().__init__(path)

    monkeypatch.setattr(laterpack, "PackWriter", Writer)
    monkeypatch.setattr(constants, "PACK_MAX_BYTES", 500_000)
    return paths


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    folder = tmp_path / "noise"
    folder.mkdir()
    for number in range(10):
        (folder / f"file{number}").write_bytes(random.Random(number).randbytes(300_000))
    return folder


@pytest.mark.parametrize("same_store", [True, False])
@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda tree: None, 0),
        (lambda tree: (tree / "file0").write_bytes(b"new"), 5),
        (lambda tree: (tree / "file9").write_bytes(b"new"), 1),
        (lambda tree: (tree / "more").write_bytes(bytes(range(256)) * 2000), 1),
        (lambda tree: (tree / "file9").unlink(), 1),
    ],
)
def test_packs_that_come_out_the_same_are_not_written(
    noise: Path,
    tmp_path: Path,
    written: list[Path],
    change: Callable[[Path], object],
    count: int,
    same_store: bool,
) -> None:
    store = MemoryStore()
    layer = pack(noise, tmp_path, store)
    assert len(layer.manifest.packs) > 4
    change(noise)
    fresh = pack(noise, tmp_path, MemoryStore())
    written.clear()
    target = store if same_store else MemoryStore()
    again = pack(noise, tmp_path, target, frames_of(store, layer))
    assert again.manifest == fresh.manifest
    assert len(written) == count
    assert all(target.has(blob) for blob in again.manifest.blobs)


@pytest.mark.parametrize("mishap", ["missing", "damaged"])
def test_a_frame_that_is_lost_meanwhile_is_made_again(
    noise: Path, tmp_path: Path, written: list[Path], mishap: str
) -> None:
    """A pack has lost its contents, but the index in memory still says what it had."""
    store = MemoryStore()
    layer = pack(noise, tmp_path, store)
    frames = frames_of(store, layer)
    assert all(frames.has(chunk.digest) for chunk in table_of(store, layer))
    for blob in layer.manifest.packs:
        data = store.blobs.pop(blob.digest)
        if mishap == "damaged":
            store.blobs[blob.digest] = data[:99] + bytes([data[99] ^ 1]) + data[100:]
    for number in range(10):  # a small change in each pack
        (noise / f"file{number}+").write_bytes(bytes([number]) * 5000)
    fresh = pack(noise, tmp_path, MemoryStore())
    target = MemoryStore()
    assert pack(noise, tmp_path, target, frames).manifest == fresh.manifest
    assert all(target.has(blob) for blob in fresh.manifest.blobs)
