"""Checks of what this node keeps of a layer: its unpacked metadata, its cached chunks."""

from __future__ import annotations

import logging

from dsec_layers.chunks.frame import chunk_digest, decode_chunk
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.errors import CorruptError, DsecError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.lazyfs.report import Findings, Recorder

_log = logging.getLogger(__name__)


def check_image(layer: MountLayer, images: MetadataImages, recorder: Recorder) -> None:
    """Check the image that the kernel mounts, if it is here; a damaged one is fetched again."""
    path = images.path(layer.digest)
    if not path.exists():
        return
    with recorder.check(f"metadata image {path}") as findings:
        try:
            findings.size_bytes = images.check(layer)
        except CorruptError as error:
            findings.problem(error.message)
            images.ensure(layer)
            findings.repaired = True


def check_cache(
    layer: MountLayer, table: ChunkTable, cache: ChunkCache, recorder: Recorder
) -> None:
    """Check the cached chunks of `layer`; a damaged one is removed and fetched again."""
    with recorder.check("cached chunks") as findings:
        broken = [chunk for chunk in table if not _is_sound(chunk, cache, findings)]
        repaired = [_fetch(layer, chunk, cache, findings) for chunk in broken]
        findings.repaired = bool(broken) and all(repaired)


def _is_sound(chunk: Chunk, cache: ChunkCache, findings: Findings) -> bool:
    """Whether the entry of a chunk, if there is one, is right."""
    try:
        plain = cache.load(chunk.digest, chunk.length)
        if plain is None:
            return True
        findings.size_bytes += chunk.length
        if chunk_digest(plain) == chunk.digest:
            return True
        cache.discard(chunk.digest)
        findings.problem(f"cached chunk blake3:{chunk.digest.hex()} does not match its digest")
    except CorruptError as error:  # and removed
        findings.problem(error.message)
    return False


def _fetch(layer: MountLayer, chunk: Chunk, cache: ChunkCache, findings: Findings) -> bool:
    """Put the right chunk into the cache; whether it is there now."""
    pack = layer.manifest.packs[chunk.pack]
    try:
        stored = layer.blobs.read(pack, chunk.pack_offset, chunk.stored_length)
        cache.store(chunk.digest, decode_chunk(stored, chunk.length, chunk.digest))
        plain = cache.load(chunk.digest, chunk.length)
    except DsecError as error:
        findings.problem(f"it cannot be fetched again: {error.message}")
        return False
    _log.warning("cached chunk blake3:%s was damaged; fetched again", chunk.digest.hex())
    return plain is None or chunk_digest(plain) == chunk.digest
