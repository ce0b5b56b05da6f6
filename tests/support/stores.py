"""Blobs, layers and environments made up for tests of stores."""

from __future__ import annotations

from collections.abc import Sequence

from dsec_layers.model import canonical
from dsec_layers.model.blobs import Store
from dsec_layers.model.environment import Environment
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    METADATA_TYPE,
    PACK_TYPE,
    TABLE_TYPE,
    Descriptor,
    LayerConfig,
    LayerManifest,
    Plain,
    Provenance,
    Sizes,
)
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig

ZEROS = f"blake3:{'0' * 64}"


def put_bytes(store: Store, data: bytes, media_type: str = PACK_TYPE) -> Descriptor:
    """Put `data` and return its descriptor."""
    blob = Descriptor.of(data, media_type)
    store.put(blob, data)
    return blob


def put_layer(
    store: Store, reference: Reference, packs: Sequence[bytes], *, base: str = ""
) -> Descriptor:
    """Put a layer of these packs whose other blobs are made from its name, and tag it.

    `base` is the digest of the layer that it was built on.
    """
    name = str(reference).encode()
    config = LayerConfig(
        kind=reference.kind,
        name=reference.name,
        tree_digest=ZEROS,
        sizes=Sizes(1, 1, 1, 1, 1),
        metadata=Plain(1, ZEROS),
        table=Plain(1, ZEROS),
        provenance=Provenance(base=base),
    )
    manifest = LayerManifest(
        packs=tuple(put_bytes(store, pack) for pack in packs),
        table=put_bytes(store, b"table of " + name, TABLE_TYPE),
        metadata=put_bytes(store, b"metadata of " + name, METADATA_TYPE),
        config=put_bytes(store, canonical.encode(config), CONFIG_TYPE),
    )
    store.put(manifest.descriptor(), manifest.encode())
    store.tag(reference, manifest.descriptor())
    return manifest.descriptor()


def put_environment(
    store: Store, reference: Reference, layers: Sequence[tuple[Kind, str, Descriptor]]
) -> Descriptor:
    """Put and tag an environment of these layers."""
    environment = Environment.of(layers, RunConfig())
    store.put(environment.descriptor(), environment.encode())
    store.tag(reference, environment.descriptor())
    return environment.descriptor()
