"""Whether all that a store shows is whole."""

from __future__ import annotations

from dsec_layers.model.blobs import Store
from dsec_layers.registry import layers


def check_closures(store: Store) -> list[str]:
    """Read all that each tag leads to, against its digest; the tags that there are."""
    found = []
    for reference, target in store.tags():
        found.append(str(reference))
        for layer in layers.layer_descriptors(store, target):
            manifest = layers.load_manifest(store, layer)
            layers.load_config(store, manifest)
            for blob in manifest.blobs:
                assert sum(map(len, store.stream(blob))) == blob.size
    return found
