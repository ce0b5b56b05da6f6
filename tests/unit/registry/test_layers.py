"""Layers and environments are checked as they are loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import layers
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes, put_environment, put_layer

BASE = Reference.parse("base/debian:12")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "store", create=True)


def test_a_layer_and_an_environment(store: DirectoryStore) -> None:
    descriptor = put_layer(store, BASE, [b"pack"])
    loaded = layers.load_layer(store, descriptor)
    assert loaded.manifest.descriptor() == loaded.descriptor == descriptor
    assert (loaded.config.kind, loaded.config.name) == (Kind.BASE, "debian")
    target = put_environment(store, Reference(Kind.ENV, "e"), [(Kind.BASE, str(BASE), descriptor)])
    assert [layer.digest for layer in layers.layer_descriptors(store, target)] == [
        descriptor.digest
    ]
    assert layers.layer_descriptors(store, descriptor) == (descriptor,)
    with pytest.raises(InvalidInputError):
        layers.load_layer(store, target)
    with pytest.raises(InvalidInputError):
        layers.load_environment(store, descriptor)


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"schemaVersion":2}', b"\xff"])
def test_other_documents_are_refused(store: DirectoryStore, data: bytes) -> None:
    with pytest.raises(CorruptError):
        layers.load_manifest(store, put_bytes(store, data, OCI_MANIFEST))
    with pytest.raises(CorruptError):
        layers.load_environment(store, put_bytes(store, data, OCI_INDEX))


def test_a_huge_document_is_not_read(store: DirectoryStore) -> None:
    with pytest.raises(CorruptError, match="claims"):
        layers.load_manifest(store, Descriptor(OCI_MANIFEST, f"sha256:{'0' * 64}", 1 << 40))


def test_a_missing_config_is_missing(store: DirectoryStore) -> None:
    descriptor = put_layer(store, BASE, [b"pack"])
    store.delete(layers.load_manifest(store, descriptor).config)
    with pytest.raises(NotFoundError):
        layers.load_layer(store, descriptor)
    with pytest.raises(CorruptError):
        layers.load_layer(store, msgspec.structs.replace(descriptor, size=descriptor.size + 1))
