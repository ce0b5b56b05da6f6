from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dsec_layers.chunks import constants
from dsec_layers.chunks import pack as pack_module
from dsec_layers.chunks.frame import chunk_digest, decode_chunk, encode_chunk
from dsec_layers.chunks.packs import KnownLayer, PackSet
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.model.manifest import Descriptor
from tests.support.memory_store import MemoryStore


def noise(name: str, length: int = 10_000) -> bytes:
    return hashlib.shake_128(name.encode()).digest(length)


def pack(
    folder: Path, store: MemoryStore, chunks: list[bytes], known: list[KnownLayer] | None = None
) -> KnownLayer:
    """A layer of these chunks, as something that the next one can know."""

    def publish(path: Path, blob: Descriptor) -> None:
        store.put(blob, path, consume=True)

    with PackSet(folder, publish, known or []) as packs:
        for plain in chunks:
            digest = chunk_digest(plain)
            packs.add(digest, len(plain), encode_chunk(plain) if packs.needs(digest) else None)
        blobs, table = packs.finish()
    assert [path.name for path in folder.iterdir()] == []
    return KnownLayer(table, blobs)


def unpack(store: MemoryStore, layer: KnownLayer) -> list[bytes]:
    table = ChunkTable.decode(layer.table.encode())
    assert [f"sha256:{pack.sha256.hex()}" for pack in table.packs] == [
        blob.digest for blob in layer.packs
    ]
    return [
        decode_chunk(
            store.read(layer.packs[chunk.pack], chunk.pack_offset, chunk.stored_length),
            chunk.length,
            chunk.digest,
        )
        for chunk in table
    ]


def test_what_is_packed_comes_back(tmp_path: Path) -> None:
    store = MemoryStore()
    chunks = [noise("a"), b"text" * 5000, noise("b", 1), noise("a")]
    layer = pack(tmp_path, store, chunks)
    assert unpack(store, layer) == chunks
    assert len(layer.packs) == 1


def test_an_equal_chunk_is_stored_once(tmp_path: Path) -> None:
    store = MemoryStore()
    layer = pack(tmp_path, store, [noise("a")] * 100)
    assert len(layer.table) == 100
    assert layer.packs[0].size < 11_000


def test_a_full_pack_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "PACK_MAX_BYTES", 25_000)
    store = MemoryStore()
    chunks = [noise(str(number)) for number in range(10)]
    layer = pack(tmp_path, store, chunks)
    assert [chunk.pack for chunk in layer.table] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert unpack(store, layer) == chunks


def test_no_chunks_need_no_pack(tmp_path: Path) -> None:
    layer = pack(tmp_path, MemoryStore(), [])
    assert layer.packs == ()
    assert len(layer.table) == 0


def test_chunks_of_a_known_layer_are_referred_to(tmp_path: Path) -> None:
    store = MemoryStore()
    base = pack(tmp_path, store, [noise(str(number)) for number in range(10)])
    chunks = [noise("new"), noise("3"), noise("4"), noise("3")]
    layer = pack(tmp_path, store, chunks, [base])
    assert unpack(store, layer) == chunks
    assert len(layer.packs) == 2
    assert base.packs[0] in layer.packs
    assert layer.packs[0].size < 11_000
    assert [chunk.pack for chunk in layer.table] == [0, 1, 1, 1]


def test_a_layer_of_known_chunks_writes_nothing(tmp_path: Path) -> None:
    store = MemoryStore()
    base = pack(tmp_path, store, [noise(str(number)) for number in range(10)])
    written = list(store.written)
    layer = pack(tmp_path, store, [noise("7")], [base])
    assert store.written == written
    assert unpack(store, layer) == [noise("7")]


def test_a_pack_that_gives_too_little_is_not_referred_to(tmp_path: Path) -> None:
    """Below 1/64 of its bytes; the chunks are stored again, after the others."""
    store = MemoryStore()
    base = pack(tmp_path, store, [noise(str(number)) for number in range(200)])
    few = [noise("0"), noise("new"), noise("1"), noise("0")]
    layer = pack(tmp_path, store, few, [base])
    assert unpack(store, layer) == few
    assert base.packs[0] not in layer.packs
    assert layer.packs[0].size < 31_000
    enough = [*few, noise("2"), noise("3")]
    layer = pack(tmp_path, store, enough, [base])
    assert unpack(store, layer) == enough
    assert base.packs[0] in layer.packs
    assert sum(blob.size for blob in layer.packs if blob not in base.packs) < 11_000


def test_the_first_known_layer_wins_and_unused_ones_are_not_listed(tmp_path: Path) -> None:
    store = MemoryStore()
    first = pack(tmp_path, store, [noise("a"), noise("b")])
    second = pack(tmp_path, store, [noise("b"), noise("c"), noise("d")])
    layer = pack(tmp_path, store, [noise("b")], [first, second])
    assert layer.packs == first.packs
    assert unpack(store, layer) == [noise("b")]


def test_an_unfinished_set_leaves_nothing(tmp_path: Path) -> None:
    with PackSet(tmp_path, lambda *_: None) as packs:
        packs.add(b"d" * 32, 100, bytes(100))
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_change_leaves_the_packs_behind_it_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk ends its pack by its own digest, unless the pack is too short or far too long."""
    monkeypatch.setattr(constants, "PACK_MIN_BYTES", 100_000)
    monkeypatch.setattr(constants, "PACK_MAX_BYTES", 400_000)
    monkeypatch.setattr(pack_module, "_END_RATE", (1 << 64) // 100_000)
    store = MemoryStore()
    chunks = [noise(str(number)) for number in range(400)]
    layer = pack(tmp_path, store, chunks)
    sizes = [blob.size for blob in layer.packs[:-1]]
    assert all(100_000 <= size < 420_000 for size in sizes)
    assert 150_000 < sum(sizes) / len(sizes) < 250_000
    for changed in (
        [*chunks[:30], noise("changed"), *chunks[31:]],
        [noise("first"), *chunks],
        [*chunks[:30], *chunks[31:]],
    ):
        again = pack(tmp_path, store, changed)
        assert unpack(store, again) == changed
        assert sum(blob not in layer.packs for blob in again.packs) <= 4
        assert again.packs[-8:] == layer.packs[-8:]
