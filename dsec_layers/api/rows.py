"""What commands report about layers and environments."""

from __future__ import annotations

import msgspec

from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.manifest import OCI_INDEX, Descriptor


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A layer, or an environment with the sums of its layers.

    `content_bytes` sums file sizes, `device_bytes` is what the layer's device holds,
    `stored_bytes` what its blobs take in a store (packs shared with other layers included).
    """

    reference: str
    digest: str
    kind: str
    entries: int
    files: int
    content_bytes: int
    device_bytes: int
    stored_bytes: int
    chunks: int
    layers: tuple[str, ...] = ()


def layer_row(layer: MountLayer, reference: str) -> LayerRow:
    """The row of one layer."""
    sizes = layer.config.sizes
    return LayerRow(
        reference=reference,
        digest=layer.descriptor.digest,
        kind=layer.config.kind.value,
        entries=sizes.entries,
        files=sizes.files,
        content_bytes=sizes.content_bytes,
        device_bytes=sizes.device_bytes,
        stored_bytes=sum(blob.size for blob in layer.manifest.blobs),
        chunks=sizes.chunks,
    )


def any_row(reference: str, descriptor: Descriptor, layers: tuple[MountLayer, ...]) -> LayerRow:
    """The row of an environment with these layers, or of the only one."""
    if descriptor.media_type == OCI_INDEX:
        return sum_row(reference, descriptor.digest, layers)
    return layer_row(layers[0], reference)


def sum_row(reference: str, digest: str, layers: tuple[MountLayer, ...]) -> LayerRow:
    """The row of an environment."""
    rows = [layer_row(layer, layer.reference) for layer in layers]
    blobs = {blob.digest: blob.size for layer in layers for blob in layer.manifest.blobs}
    return LayerRow(
        reference=reference,
        digest=digest,
        kind="env",
        entries=sum(row.entries for row in rows),
        files=sum(row.files for row in rows),
        content_bytes=sum(row.content_bytes for row in rows),
        device_bytes=sum(row.device_bytes for row in rows),
        stored_bytes=sum(blobs.values()),
        chunks=sum(row.chunks for row in rows),
        layers=tuple(f"{row.reference}@{row.digest}" for row in rows),
    )
