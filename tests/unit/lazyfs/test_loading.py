from __future__ import annotations

from collections.abc import Callable

import blake3
import msgspec
import pytest
import zstandard

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.loading import KeptBlobs, load_served_layer
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model.manifest import Descriptor, LayerManifest, Plain, decode_config
from tests.support.devices import put_device, put_table
from tests.support.faulty_store import FaultyStore
from tests.support.lazy import BLOCK, NO_WAIT, device_bytes
from tests.support.memory_store import MemoryStore

DATA = device_bytes(8)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def layer(store: FaultyStore) -> Descriptor:
    return put_device(blobs(store), DATA, [BLOCK] * 8)


def blobs(store: FaultyStore) -> MemoryStore:
    assert isinstance(store.source, MemoryStore)
    return store.source


def load_with(
    layer: Descriptor, store: FaultyStore, kept: tuple[bytes, ...] = ()
) -> tuple[ServedLayer, tuple[bytes, ...]]:
    chain = StoreChain(["s:0"], Lanes(lambda _: store, NO_WAIT), Counters())
    return load_served_layer(layer, chain, kept)


def load(layer: Descriptor, store: FaultyStore) -> ServedLayer:
    return load_with(layer, store)[0]


def parts(layer: Descriptor, store: FaultyStore) -> LayerManifest:
    return LayerManifest.decode(blobs(store).blobs[layer.digest])


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_what_is_kept_is_not_fetched(layer: Descriptor, store: FaultyStore) -> None:
    loaded, documents = load_with(layer, store)
    assert loaded.digest == layer.parsed_digest
    assert [chunk.length for chunk in loaded.table] == [BLOCK] * 8
    assert len(store.requests) == 3
    blobs(store).blobs.clear()
    again, same = load_with(layer, store, documents)
    assert list(again.table) == list(loaded.table)
    assert same == documents
    assert len(store.requests) == 3


def test_a_damaged_copy_is_fetched_again(layer: Descriptor, store: FaultyStore) -> None:
    _, documents = load_with(layer, store)
    damaged = (documents[0], *map(flipped, documents[1:]))
    _, whole = load_with(layer, store, damaged)
    assert len(store.requests) == 5
    assert set(documents) <= set(whole)


@pytest.mark.parametrize(
    "part",
    [lambda _: None, lambda manifest: manifest.config, lambda manifest: manifest.table],
    ids=["manifest", "config", "table"],
)
def test_a_damaged_or_missing_blob_is_named(
    part: Callable[[LayerManifest], Descriptor | None],
    layer: Descriptor,
    store: FaultyStore,
) -> None:
    blob = part(parts(layer, store)) or layer
    whole = blobs(store).blobs[blob.digest]
    blobs(store).blobs[blob.digest] = flipped(whole)
    with pytest.raises(CorruptError, match=blob.digest):
        load(layer, store)
    del blobs(store).blobs[blob.digest]
    with pytest.raises(NotFoundError, match=blob.digest):
        load(layer, store)
    blobs(store).blobs[blob.digest] = whole
    assert len(load(layer, store).table) == 8  # nothing wrong was kept


def test_kept_blobs_read_ranges(layer: Descriptor, store: FaultyStore) -> None:
    kept = KeptBlobs((), store)
    assert kept.has(layer)
    data = blobs(store).blobs[layer.digest]
    assert kept.read(layer, 3, 5) == data[3:8]
    assert kept.read(layer, 3) == data[3:]
    blobs(store).blobs.clear()
    assert kept.has(layer)
    assert b"".join(kept.stream(layer)) == data


def test_packs_must_be_the_manifests(layer: Descriptor, store: FaultyStore) -> None:
    table = load(layer, store).table
    (pack,) = parts(layer, store).packs
    other = msgspec.structs.replace(pack, size=pack.size + 1)
    for wrong in ([other], [pack, pack], []):
        with pytest.raises(CorruptError, match="different packs"):
            load(put_table(blobs(store), table, wrong), store)


def test_tables_that_are_not_what_the_config_says(layer: Descriptor, store: FaultyStore) -> None:
    manifest = parts(layer, store)
    plain = decode_config(blobs(store).blobs[manifest.config.digest]).table
    blob = blobs(store).blobs[manifest.table.digest]
    data = zstandard.decompress(blob)
    assert len(decode_table(blob, plain)) == 8

    def named(data: bytes) -> Plain:
        return Plain(len(data), f"blake3:{blake3.blake3(data).hexdigest()}")

    bomb = zstandard.compress(bytes(1 << 28))
    wrong = [b"", b"garbage", blob[:-3], bomb, zstandard.compress(flipped(data))]
    for each in wrong:
        with pytest.raises(CorruptError):
            decode_table(each, plain)
    for each in (flipped(data)[:-1], data[:-68], b""):
        with pytest.raises(CorruptError):
            decode_table(zstandard.compress(each), named(each))
    gap = ChunkTable.decode(data).encode()[:-68]
    with pytest.raises(CorruptError):
        decode_table(zstandard.compress(gap), named(gap))
