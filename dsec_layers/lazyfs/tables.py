"""Chunk tables as layers hold them: packed, and named by digest in the config.

Apart from `loading`, because who only looks into a layer needs nothing of what serves one.
"""

from __future__ import annotations

import io

import blake3
import zstandard

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import CorruptError
from dsec_layers.model.manifest import Plain


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
