from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import blake3
import msgspec
import pytest
import zstandard

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.loading import KeptBlobs, decode_table, load_served_layer
from dsec_layers.lazyfs.stores import StoreChain
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


def load(layer: Descriptor, folder: Path, store: FaultyStore) -> ServedLayer:
    chain = StoreChain(["s:0"], Lanes(lambda _: store, NO_WAIT), Counters())
    return load_served_layer(layer, folder, chain)


def parts(layer: Descriptor, store: FaultyStore) -> LayerManifest:
    return LayerManifest.decode(blobs(store).blobs[layer.digest])


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_layer_is_loaded_once_and_kept(
    layer: Descriptor, store: FaultyStore, tmp_path: Path
) -> None:
    loaded = load(layer, tmp_path / "kept", store)
    assert loaded.digest == layer.parsed_digest
    assert [chunk.length for chunk in loaded.table] == [BLOCK] * 8
    assert len(store.requests) == 3
    blobs(store).blobs.clear()
    assert list(load(layer, tmp_path / "kept", store).table) == list(loaded.table)
    assert len(store.requests) == 3


def test_a_damaged_copy_is_fetched_again(
    layer: Descriptor, store: FaultyStore, tmp_path: Path
) -> None:
    load(layer, tmp_path, store)
    for path in tmp_path.iterdir():
        path.write_bytes(flipped(path.read_bytes()))
    load(layer, tmp_path, store)
    assert len(store.requests) == 6
    blobs(store).blobs.clear()
    load(layer, tmp_path, store)


@pytest.mark.parametrize(
    "part",
    [lambda _: None, lambda manifest: manifest.config, lambda manifest: manifest.table],
    ids=["manifest", "config", "table"],
)
def test_a_damaged_or_missing_blob_is_named(
    part: Callable[[LayerManifest], Descriptor | None],
    layer: Descriptor,
    store: FaultyStore,
    tmp_path: Path,
) -> None:
    blob = part(parts(layer, store)) or layer
    whole = blobs(store).blobs[blob.digest]
    blobs(store).blobs[blob.digest] = flipped(whole)
    with pytest.raises(CorruptError, match=blob.digest):
        load(layer, tmp_path, store)
    del blobs(store).blobs[blob.digest]
    with pytest.raises(NotFoundError, match=blob.digest):
        load(layer, tmp_path, store)
    blobs(store).blobs[blob.digest] = whole
    assert len(load(layer, tmp_path, store).table) == 8  # nothing wrong was kept


def test_kept_blobs_read_ranges(layer: Descriptor, store: FaultyStore, tmp_path: Path) -> None:
    kept = KeptBlobs(tmp_path, store)
    assert kept.has(layer)
    data = blobs(store).blobs[layer.digest]
    assert kept.read(layer, 3, 5) == data[3:8]
    assert kept.read(layer, 3) == data[3:]
    blobs(store).blobs.clear()
    assert kept.has(layer)
    assert b"".join(kept.stream(layer)) == data


def test_packs_must_be_the_manifests(layer: Descriptor, store: FaultyStore, tmp_path: Path) -> None:
    table = load(layer, tmp_path / "1", store).table
    (pack,) = parts(layer, store).packs
    other = msgspec.structs.replace(pack, size=pack.size + 1)
    for wrong in ([other], [pack, pack], []):
        with pytest.raises(CorruptError, match="different packs"):
            load(put_table(blobs(store), table, wrong), tmp_path / "2", store)


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
