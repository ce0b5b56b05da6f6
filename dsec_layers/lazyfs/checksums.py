"""Check values of chunks in the cache, one for each piece, so that a piece can be read alone.

A value is the xxh3 of a piece, 8 bytes, seeded by the first 8 bytes of the chunk's digest plus the
number of the piece: a piece of another chunk, or in another place, fails.
"""

from __future__ import annotations

from typing import Final

import xxhash

# With 64 KiB a read of 4 KiB from an SSD takes little longer than it would alone.
PIECE_BYTES: Final = 16 << 10
_SUM_BYTES: Final = 8
_SEEDS: Final = 1 << 64


def sums_bytes(length: int) -> int:
    """How many bytes the check values of a chunk of `length` bytes take."""
    return -(-length // PIECE_BYTES) * _SUM_BYTES


def sums_of(digest: bytes, data: bytes | memoryview, first: int = 0) -> bytes:
    """The check values of `data`, which begins with piece number `first` of its chunk."""
    seed = int.from_bytes(digest[:8], "little") + first
    view, starts = memoryview(data), range(0, len(data), PIECE_BYTES)
    return b"".join(
        xxhash.xxh3_64_digest(view[start : start + PIECE_BYTES], seed=(seed + number) % _SEEDS)
        for number, start in enumerate(starts)
    )


def pieces(length: int, start: int, end: int) -> tuple[int, int]:
    """The bytes, from and to, of those pieces of a chunk that hold the bytes `start` to `end`."""
    return start // PIECE_BYTES * PIECE_BYTES, min(length, -(-end // PIECE_BYTES) * PIECE_BYTES)
