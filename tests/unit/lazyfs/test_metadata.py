import logging
from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.model.manifest import Plain
from dsec_layers.registry.directory import DirectoryStore
from tests.support.damage import blob_path, flip_bit
from tests.support.layers import file_tree, pack_tree

TREE = file_tree({b"a/b": b"content", b"c": bytes(5000) + b"x"})


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "store", create=True)


@pytest.fixture
def layer(store: DirectoryStore, tmp_path: Path) -> MountLayer:
    return pack_tree(*TREE, store, tmp_path)


@pytest.fixture
def images(tmp_path: Path) -> MetadataImages:
    return MetadataImages(tmp_path / "home")


def test_the_image_is_fetched_once_and_whole(
    images: MetadataImages, layer: MountLayer, store: DirectoryStore
) -> None:
    path = images.ensure(layer)
    assert path.stat().st_size == layer.config.metadata.size_bytes
    store.delete(layer.manifest.metadata)
    assert images.ensure(layer) == path
    with images.open(layer.digest) as image:
        assert [entry.path for entry in image.walk()] == [b"", b"a", b"a/b", b"c"]
    assert images.device_bytes(layer) == layer.config.sizes.device_bytes


def test_a_damaged_image_is_fetched_again_and_said(
    images: MetadataImages, layer: MountLayer, caplog: pytest.LogCaptureFixture
) -> None:
    path = images.ensure(layer)
    good = path.read_bytes()
    flip_bit(path, 1500)
    with caplog.at_level(logging.WARNING):
        assert images.ensure(layer) == path
    assert path.read_bytes() == good
    assert f"damaged on this node: {path}; fetched again" in caplog.text


def test_a_damaged_image_that_cannot_be_had_again_is_named(
    images: MetadataImages, layer: MountLayer, store: DirectoryStore
) -> None:
    path = images.ensure(layer)
    flip_bit(path, 1500)
    damaged = path.read_bytes()
    store.delete(layer.manifest.metadata)
    with pytest.raises(CorruptError, match=str(path)):
        images.ensure(layer)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("where", [0, 20, -1])
def test_a_damaged_blob_never_becomes_an_image(
    images: MetadataImages, layer: MountLayer, store: DirectoryStore, where: int
) -> None:
    flip_bit(blob_path(store, layer.manifest.metadata), where)
    with pytest.raises(CorruptError, match=layer.manifest.metadata.digest[7:20]):
        images.ensure(layer)
    assert not images.path(layer.digest).exists()
    images.sweep()
    assert list(images.path(layer.digest).parent.iterdir()) == []


@pytest.mark.parametrize("size", [-1, 1])
def test_an_image_of_another_size_than_the_config_says_is_refused(
    images: MetadataImages, layer: MountLayer, size: int
) -> None:
    plain = layer.config.metadata
    wrong = Plain(plain.size_bytes + size, plain.digest)
    config = msgspec.structs.replace(layer.config, metadata=wrong)
    lying = MountLayer(layer.descriptor, layer.manifest, config, layer.blobs)
    with pytest.raises(CorruptError, match="does not hold the image"):
        images.ensure(lying)


def test_a_missing_blob_is_missing(
    images: MetadataImages, layer: MountLayer, store: DirectoryStore
) -> None:
    store.delete(layer.manifest.metadata)
    with pytest.raises(NotFoundError):
        images.ensure(layer)
