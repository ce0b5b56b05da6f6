"""Reading what serving a layer takes: manifest, config and chunk table, each kept on this node."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import blake3
import zstandard

from dsec_layers.chunks.table import ChunkTable, PackRef
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs import durable
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor, LayerManifest, Plain, decode_config


class KeptBlobs:
    """A BlobReader that keeps each blob it reads in `folder`; a damaged copy is fetched again."""

    def __init__(self, folder: Path, source: BlobReader) -> None:
        self._folder = folder
        self._source = source

    def has(self, blob: Descriptor) -> bool:
        """Whether the blob can be had."""
        return (self._folder / blob.parsed_digest.hex).exists() or self._source.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """As BlobReader.read, but a range is checked too, for the whole blob is read."""
        data = self._whole(blob)
        return data[offset : len(data) if length is None else offset + length]

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """The whole blob, in one piece."""
        yield self._whole(blob)

    def _whole(self, blob: Descriptor) -> bytes:
        path = self._folder / blob.parsed_digest.hex
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if _matches(data, blob):
                return data
        data = self._source.read(blob)
        if not _matches(data, blob):
            raise CorruptError(f"blob {blob.digest} does not match its digest")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write_whole(path, [data], sync=False)
        return data


def load_served_layer(layer: Descriptor, folder: Path, stores: StoreChain) -> ServedLayer:
    """Everything about a layer but its packs. Raises NotFoundError, CorruptError, StoreError."""
    blobs = KeptBlobs(folder, stores)
    manifest = LayerManifest.decode(blobs.read(layer))
    config = decode_config(blobs.read(manifest.config))
    return with_table(MountLayer(layer, manifest, config, blobs), stores)


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


def decode_table(blob: bytes, plain: Plain) -> ChunkTable:
    """The chunk table in its zstd blob, checked. Raises CorruptError."""
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(blob))
    try:
        data = reader.read(plain.size_bytes + 1)  # never more, whatever the blob unpacks to
    except zstandard.ZstdError as error:
        raise CorruptError(f"chunk table does not unpack: {error}") from error
    if (len(data), f"blake3:{blake3.blake3(data).hexdigest()}") != (plain.size_bytes, plain.digest):
        raise CorruptError("chunk table does not match the digest in the layer's config")
    return ChunkTable.decode(data)


def _pack_refs(manifest: LayerManifest) -> tuple[PackRef, ...]:
    return tuple(
        PackRef(bytes.fromhex(pack.parsed_digest.hex), pack.size) for pack in manifest.packs
    )


def _matches(data: bytes, blob: Descriptor) -> bool:
    return len(data) == blob.size and Digest.sha256(data) == blob.parsed_digest
