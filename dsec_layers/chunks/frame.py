"""One chunk as it is stored: a zstd frame, or the plain bytes where a frame would not be smaller.

No flag tells the two apart: a chunk is stored plain exactly when its stored and plain lengths are
equal. The frame carries its content size and no checksum; the chunk's digest covers the plain
bytes.
"""

from __future__ import annotations

import threading
from typing import Final

import blake3
import zstandard

from dsec_layers.chunks.constants import ZSTD_LEVEL
from dsec_layers.errors import CorruptError

# What decides how the frame of a chunk looks, besides its plain bytes.
ENCODER: Final = f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))} level {ZSTD_LEVEL}"


class _Codecs(threading.local):
    """Compression contexts are large and not to be shared between threads: one pair for each."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(
            level=ZSTD_LEVEL, write_checksum=False, write_content_size=True
        )
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()


def chunk_digest(plain: bytes | memoryview) -> bytes:
    """The 32-byte name of a chunk: blake3 of its plain bytes."""
    return blake3.blake3(plain).digest()


def encode_chunk(plain: bytes | memoryview) -> bytes:
    """The stored form of a chunk; as long as `plain` when it is stored plain."""
    frame = _codecs.compressor.compress(plain)
    return frame if len(frame) < len(plain) else bytes(plain)


def decode_chunk(stored: bytes | memoryview, length: int, digest: bytes) -> bytes:
    """The `length` plain bytes of a chunk, checked against `digest`. Raises CorruptError."""
    plain = bytes(stored) if len(stored) == length else _decompress(stored, length, digest)
    if chunk_digest(plain) != digest:
        raise CorruptError(f"chunk blake3:{digest.hex()} does not match its digest")
    return plain


def _decompress(stored: bytes | memoryview, length: int, digest: bytes) -> bytes:
    name = f"chunk blake3:{digest.hex()}"
    try:
        claimed = zstandard.frame_content_size(stored)
        if claimed != length:  # checked first: the decoder allocates what the frame claims
            raise CorruptError(f"{name} is stored as a frame of {claimed} bytes, not {length}")
        plain = _codecs.decompressor.decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptError(f"{name} does not decompress: {error}") from error
    return plain
