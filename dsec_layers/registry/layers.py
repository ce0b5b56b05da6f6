"""Layers and environments in a store, loaded by descriptor and checked: type, digest, shape."""

from __future__ import annotations

from typing import Final

import msgspec

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.environment import Environment
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    LayerConfig,
    LayerManifest,
    decode_config,
)

MAX_DOCUMENT_BYTES: Final = (
    16 << 20
)  # the same bound for manifests, configs and indexes; more is not one of ours


class StoredLayer(msgspec.Struct, frozen=True):
    """A layer in a store: the descriptor of its manifest, the manifest, and the config."""

    descriptor: Descriptor
    manifest: LayerManifest
    config: LayerConfig


def load_manifest(store: BlobReader, layer: Descriptor) -> LayerManifest:
    """The manifest of a layer.

    Raises InvalidInputError when `layer` is no layer, NotFoundError, CorruptError or StoreError.
    """
    return LayerManifest.decode(_document(store, layer, OCI_MANIFEST, "layer"))


def load_config(store: BlobReader, manifest: LayerManifest) -> LayerConfig:
    """The config of a layer. Raises NotFoundError, CorruptError or StoreError."""
    return decode_config(_document(store, manifest.config, CONFIG_TYPE, "layer config"))


def load_layer(store: BlobReader, layer: Descriptor) -> StoredLayer:
    """Manifest and config of a layer. Raises as `load_manifest`."""
    manifest = load_manifest(store, layer)
    return StoredLayer(layer, manifest, load_config(store, manifest))


def load_environment(store: BlobReader, environment: Descriptor) -> Environment:
    """An environment. Raises InvalidInputError when it is a layer, else as `load_manifest`."""
    return Environment.decode(_document(store, environment, OCI_INDEX, "environment"))


def layer_descriptors(store: BlobReader, target: Descriptor) -> tuple[Descriptor, ...]:
    """The layers of an environment, lowest first, or the layer itself."""
    if target.media_type == OCI_INDEX:
        return load_environment(store, target).layers
    return (target,)


def _document(store: BlobReader, blob: Descriptor, media_type: str, what: str) -> bytes:
    if blob.media_type != media_type:
        raise InvalidInputError(f"{blob.digest} is not a DSec {what} but {blob.media_type}")
    if blob.size > MAX_DOCUMENT_BYTES:
        raise CorruptError(
            f"{what} {blob.digest} claims {blob.size} bytes, more than {MAX_DOCUMENT_BYTES}"
        )
    return store.read(blob)
