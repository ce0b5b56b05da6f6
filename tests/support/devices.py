"""Layers that are nothing but a device of given bytes, cut where a test wants it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import blake3
import zstandard

from dsec_layers.chunks.frame import chunk_digest, encode_chunk
from dsec_layers.chunks.pack import PackWriter
from dsec_layers.chunks.table import Chunk, ChunkTable, PackRef
from dsec_layers.model import canonical
from dsec_layers.model.blobs import BlobWriter
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    METADATA_TYPE,
    TABLE_TYPE,
    Descriptor,
    LayerConfig,
    LayerManifest,
    Plain,
    Sizes,
)
from dsec_layers.model.reference import Kind


def put_device(
    store: BlobWriter, device: bytes, lengths: Iterable[int], *, chunks_per_pack: int = 1 << 30
) -> Descriptor:
    """Put a layer whose device is cut into chunks of `lengths`; returns its manifest's descriptor.

    Nothing is in its EROFS metadata.
    """
    packs: list[Descriptor] = []
    chunks: list[Chunk] = []
    cuts = list(_cut(device, lengths))
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(cuts), chunks_per_pack):
            writer = PackWriter(Path(folder) / "pack")
            for offset, plain in cuts[start : start + chunks_per_pack]:
                digest, stored = chunk_digest(plain), encode_chunk(plain)
                at = writer.append(digest, len(plain), stored)
                chunks.append(Chunk(offset, at, len(plain), len(stored), len(packs), digest))
            packs.append(writer.finish())
            store.put(packs[-1], writer.path, consume=True)
    refs = [PackRef(bytes.fromhex(pack.parsed_digest.hex), pack.size) for pack in packs]
    return put_table(store, ChunkTable(refs, chunks), packs)


def put_table(store: BlobWriter, table: ChunkTable, packs: Iterable[Descriptor]) -> Descriptor:
    """Put the other blobs of a layer whose packs are in place."""
    config = LayerConfig(
        kind=Kind.BASE,
        name="device",
        tree_digest=f"blake3:{'0' * 64}",
        sizes=Sizes(1, 1, table.device_bytes, table.device_bytes, len(table)),
        metadata=Plain(0, f"blake3:{'0' * 64}"),
        table=Plain(len(table.encode()), f"blake3:{blake3.blake3(table.encode()).hexdigest()}"),
    )
    manifest = LayerManifest(
        config=_put(store, canonical.encode(config), CONFIG_TYPE),
        metadata=_put(store, b"", METADATA_TYPE),
        table=_put(store, zstandard.compress(table.encode()), TABLE_TYPE),
        packs=tuple(packs),
    )
    store.put(manifest.descriptor(), manifest.encode())
    return manifest.descriptor()


def _cut(device: bytes, lengths: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for length in lengths:
        if offset >= len(device):
            return
        yield offset, device[offset : offset + length]
        offset += length
    assert offset >= len(device), "the lengths do not cover the device"


def _put(store: BlobWriter, data: bytes, media_type: str) -> Descriptor:
    blob = Descriptor.of(data, media_type)
    store.put(blob, data)
    return blob
