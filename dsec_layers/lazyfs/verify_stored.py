"""Checks of a layer's blobs: every digest, every chunk, and that the parts belong together.

Nothing is trusted but the layer digest: each part is named by the one before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.pack import PackedChunk, read_index
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import unpacked_metadata
from dsec_layers.lazyfs.report import Check, Findings, Recorder
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor, LayerManifest, decode_config

_PACKS_AT_ONCE = max(2, min(4, os.cpu_count() or 1))  # each holds a chunk and a piece in memory


def load_table(layer: MountLayer) -> ChunkTable:
    """The chunk table of `layer`, checked against its config and manifest. Raises CorruptError."""
    table = decode_table(layer.blobs.read(layer.manifest.table), layer.config.table)
    named = [(pack.parsed_digest.hex, pack.size) for pack in layer.manifest.packs]
    if [(pack.sha256.hex(), pack.size) for pack in table.packs] != named:
        raise CorruptError("manifest and chunk table name different packs")
    if table.device_bytes != layer.config.sizes.device_bytes:
        raise CorruptError(
            f"the chunks fill {table.device_bytes} bytes of a device of "
            f"{layer.config.sizes.device_bytes}"
        )
    return table


def check_stored(layer: MountLayer, recorder: Recorder) -> ChunkTable | None:
    """Check all blobs of `layer`; its chunk table, unless that is damaged."""
    with recorder.check(f"manifest {layer.descriptor.digest}") as findings:
        data = _read(layer, layer.descriptor, findings)
        if LayerManifest.decode(data) != layer.manifest:
            findings.problem("it is not the manifest that is in use")
    with recorder.check(f"config {layer.manifest.config.digest}") as findings:
        data = _read(layer, layer.manifest.config, findings)
        if decode_config(data) != layer.config:
            findings.problem("it is not the config that is in use")
    with recorder.check(f"metadata {layer.manifest.metadata.digest}") as findings:
        findings.size_bytes = sum(map(len, unpacked_metadata(layer)))
    table = None
    with recorder.check(f"chunk table {layer.manifest.table.digest}") as findings:
        findings.size_bytes = layer.manifest.table.size
        table = load_table(layer)
    packs, wanted = layer.manifest.packs, _wanted(layer, table)
    with ThreadPoolExecutor(_PACKS_AT_ONCE) as pool:
        for check in pool.map(_check_pack, repeat(layer), packs, wanted):
            recorder.add(check)
    return table


def _read(layer: MountLayer, blob: Descriptor, findings: Findings) -> bytes:
    data = layer.blobs.read(blob)
    findings.size_bytes = len(data)
    if len(data) != blob.size or Digest.sha256(data) != blob.parsed_digest:
        raise CorruptError("it does not match its digest")
    return data


def _wanted(layer: MountLayer, table: ChunkTable | None) -> list[set[PackedChunk]]:
    """The chunks of each pack that the table refers to."""
    wanted: list[set[PackedChunk]] = [set() for _ in layer.manifest.packs]
    for chunk in table or ():
        packed = PackedChunk(chunk.pack_offset, chunk.stored_length, chunk.length, chunk.digest)
        wanted[chunk.pack].add(packed)
    return wanted


def _check_pack(layer: MountLayer, pack: Descriptor, wanted: set[PackedChunk]) -> Check:
    """One pass over the pack: its digest, and each chunk that its index or the table names."""
    recorder = Recorder()
    with recorder.check(f"pack {pack.digest}") as findings:
        chunks = _indexed(layer, pack, findings) or sorted(wanted)
        for chunk in sorted(wanted.difference(chunks)):
            findings.problem(f"its index does not name the chunk at {chunk.offset}")
        for chunk, stored in _cut(layer.blobs.stream(pack), chunks):
            findings.size_bytes += chunk.length
            try:
                decode_chunk(stored, chunk.length, chunk.digest)
            except CorruptError as error:
                findings.problem(f"{error.message} (at {chunk.offset})")
    return recorder.checks[0]


def _indexed(layer: MountLayer, pack: Descriptor, findings: Findings) -> Sequence[PackedChunk]:
    try:
        return read_index(lambda offset, length: layer.blobs.read(pack, offset, length), pack.size)
    except CorruptError as error:
        findings.problem(error.message)
        return ()


def _cut(
    pieces: Iterator[bytes], chunks: Iterable[PackedChunk]
) -> Iterator[tuple[PackedChunk, bytes]]:
    """The stored bytes of `chunks`, sorted by offset; the pack is read to its end."""
    held, start = bytearray(), 0
    for chunk in chunks:
        end = chunk.offset + chunk.stored_length
        while start + len(held) < end and (piece := next(pieces, b"")):
            held += piece
        del held[: chunk.offset - start]
        start = chunk.offset
        yield chunk, bytes(held[: chunk.stored_length])
    for _ in pieces:  # its digest is checked at the end
        pass
