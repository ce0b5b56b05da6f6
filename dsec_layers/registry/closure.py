"""All that a layer or environment is made of."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import layers


def blobs(store: BlobReader, target: Descriptor) -> Iterator[Descriptor]:
    """The manifest or index itself, those of its layers, and their blobs, each once.

    Raises NotFoundError, CorruptError or StoreError.
    """
    seen = {target.digest}
    yield target
    for layer in layers.layer_descriptors(store, target):
        for blob in (layer, *layers.load_manifest(store, layer).blobs):
            if blob.digest not in seen:
                seen.add(blob.digest)
                yield blob
