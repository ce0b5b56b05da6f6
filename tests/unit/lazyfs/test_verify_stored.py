from pathlib import Path

import msgspec
import pytest

from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.report import Check
from dsec_layers.lazyfs.verify import verify_stored
from dsec_layers.lazyfs.verify_stored import load_table
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry.directory import DirectoryStore
from tests.support.damage import blob_path, flip_bit
from tests.support.layers import file_tree, pack_tree, store_layer

FILES = {b"f%d" % number: bytes([number + 1]) * 20_000 for number in range(20)}


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "store", create=True)


@pytest.fixture
def layer(store: DirectoryStore, tmp_path: Path) -> MountLayer:
    return pack_tree(*file_tree(FILES), store, tmp_path)


def failures(layer: MountLayer) -> list[Check]:
    return [check for check in verify_stored([layer], "layer").checks if not check.ok]


def test_a_sound_layer_is_proved_to_the_last_chunk(layer: MountLayer) -> None:
    assert failures(layer) == []
    packs = [check for check in verify_stored([layer], "layer").checks if ": pack " in check.part]
    assert sum(check.size_bytes for check in packs) == layer.config.sizes.device_bytes


def test_every_flipped_bit_of_every_blob_is_found(store: DirectoryStore, layer: MountLayer) -> None:
    for blob in (layer.descriptor, *layer.manifest.blobs):
        path = blob_path(store, blob)
        for position in {0, blob.size // 3, blob.size - 1}:
            flip_bit(path, position)
            found = failures(layer)
            assert len(found) == 1, (blob, position)
            assert blob.digest in found[0].part
            flip_bit(path, position)
    assert failures(layer) == []


def test_every_chunk_that_is_damaged_is_named(store: DirectoryStore, layer: MountLayer) -> None:
    chunks = list(load_table(layer))
    for chunk in (chunks[0], chunks[-1]):
        path = blob_path(store, layer.manifest.packs[0])
        flip_bit(path, chunk.pack_offset + chunk.stored_length - 1)
    (check,) = failures(layer)
    problems = " ".join(check.problems)
    assert chunks[0].digest.hex() in problems
    assert chunks[-1].digest.hex() in problems
    assert chunks[1].digest.hex() not in problems


def test_chunks_are_checked_without_the_index_too(store: DirectoryStore, layer: MountLayer) -> None:
    chunk, pack = load_table(layer)[1], layer.manifest.packs[0]
    flip_bit(blob_path(store, pack), chunk.pack_offset + 5)
    flip_bit(blob_path(store, pack), pack.size - 60)
    (check,) = failures(layer)
    problems = " ".join(check.problems)
    assert "index" in problems
    assert chunk.digest.hex() in problems


def test_a_truncated_and_a_missing_pack_are_named(store: DirectoryStore, layer: MountLayer) -> None:
    pack = layer.manifest.packs[0]
    path = blob_path(store, pack)
    path.write_bytes(path.read_bytes()[: pack.size // 2])
    (truncated,) = failures(layer)
    path.unlink()
    (missing,) = failures(layer)
    assert pack.digest in truncated.part
    assert pack.digest in missing.part


def test_parts_of_different_layers_do_not_belong_together(
    store: DirectoryStore, layer: MountLayer, tmp_path: Path
) -> None:
    other = pack_tree(*file_tree({b"g": b"other" * 9000}), store, tmp_path)
    packs = msgspec.structs.replace(layer.manifest, packs=other.manifest.packs)
    (check,) = [
        check
        for check in failures(store_layer(store, layer.config, packs))
        if "chunk table" in check.part
    ]
    assert "different packs" in check.problems[0]


def test_a_device_of_another_size_than_the_config_says(
    store: DirectoryStore, layer: MountLayer
) -> None:
    sizes = msgspec.structs.replace(layer.config.sizes, device_bytes=1 << 30)
    config = msgspec.structs.replace(layer.config, sizes=sizes)
    (check,) = failures(store_layer(store, config, layer.manifest))
    assert str(1 << 30) in check.problems[0]


def test_another_manifest_than_the_one_in_use_is_found(
    store: DirectoryStore, layer: MountLayer, tmp_path: Path
) -> None:
    other: Descriptor = pack_tree(*file_tree({b"g": b"x"}), store, tmp_path).descriptor
    mixed = MountLayer(other, layer.manifest, layer.config, store)
    assert "in use" in failures(mixed)[0].problems[0]
