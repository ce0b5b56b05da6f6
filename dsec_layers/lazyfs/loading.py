"""Reading what serving a layer takes: its manifest, config and chunk table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsec_layers.chunks.table import PackRef
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor, LayerManifest, decode_config


class KeptBlobs:
    """A BlobReader of small blobs: those in `kept`, else those of `source`, which it keeps too."""

    def __init__(self, kept: Iterable[bytes], source: BlobReader) -> None:
        self._kept = {Digest.sha256(data): data for data in kept}
        self._source = source

    @property
    def kept(self) -> tuple[bytes, ...]:
        """All that it has."""
        return tuple(self._kept.values())

    def has(self, blob: Descriptor) -> bool:
        """Whether the blob can be had."""
        return blob.parsed_digest in self._kept or self._source.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """As BlobReader.read, but a range is checked too, for the whole blob is read."""
        data = self._whole(blob)
        return data[offset : len(data) if length is None else offset + length]

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """The whole blob, in one piece."""
        yield self._whole(blob)

    def _whole(self, blob: Descriptor) -> bytes:
        digest = blob.parsed_digest
        data = self._kept.get(digest)
        if data is None:
            data = self._source.read(blob)
            if Digest.sha256(data) != digest:
                raise CorruptError(f"blob {blob.digest} does not match its digest")
            self._kept[digest] = data
        if len(data) != blob.size:
            raise CorruptError(f"blob {blob.digest} is not as long as its descriptor says")
        return data


def load_served_layer(
    layer: Descriptor, stores: StoreChain, kept: Iterable[bytes] = ()
) -> tuple[ServedLayer, tuple[bytes, ...]]:
    """Everything about a layer but its packs, and the documents that it was read from.

    Those among `kept` are not fetched. Raises NotFoundError, CorruptError, StoreError.
    """
    blobs = KeptBlobs(kept, stores)
    manifest = LayerManifest.decode(blobs.read(layer))
    config = decode_config(blobs.read(manifest.config))
    return with_table(MountLayer(layer, manifest, config, blobs), stores), blobs.kept


def with_table(layer: MountLayer, stores: StoreChain) -> ServedLayer:
    """`layer` with its chunk table, its packs in `stores`.

    Raises NotFoundError, CorruptError, StoreError.
    """
    table = decode_table(layer.blobs.read(layer.manifest.table), layer.config.table)
    if table.packs != _pack_refs(layer.manifest):
        raise CorruptError(
            f"manifest and chunk table of {layer.descriptor.digest} name different packs"
        )
    return ServedLayer(layer.digest, table, layer.manifest.packs, stores)


def _pack_refs(manifest: LayerManifest) -> tuple[PackRef, ...]:
    return tuple(
        PackRef(bytes.fromhex(pack.parsed_digest.hex), pack.size) for pack in manifest.packs
    )
