"""Chunks of a file: how large they can be, and which zero blocks are stored for a short index.

EROFS maps a file in chunks of one size, a power of two of blocks. A chunk is a hole, or lies in one
piece on the device. The larger the chunks, the shorter the index; each edge between data and hole
is a multiple of the chunk size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dsec_layers.erofs.layout import BLOCK_BITS, BLOCK_SIZE, round_up

MAX_CHUNKS: Final = 1 << 20
MAX_CHUNK_BITS: Final = 31


class Extent(msgspec.Struct, frozen=True, gc=False):
    """A run of a file on the device, in bytes.

    Both offsets are multiples of 4 KiB, and so is `length` unless the extent ends with the file.
    """

    file_offset: int
    device_offset: int
    length: int


def erofs_runs(size: int, runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs (offset, length) of a file to put on the device: its data runs, if need be widened.

    `runs` are the data runs in bytes: sorted, apart, at multiples of 4 KiB (the last may end with
    the file). Where exact holes take more than 2^20 index entries, chunks become the
    smallest with which there are no more, and each run is widened to whole chunks; the zero blocks
    in them are then data to be stored.
    """
    exact = list(runs)
    edges = 0
    for offset, length in exact:
        edges |= offset | _inner_end(size, offset + length)
    if chunk_count(size, chunk_bits(size, edges)) <= MAX_CHUNKS:
        return exact
    unit = BLOCK_SIZE
    while -(-size // unit) > MAX_CHUNKS:
        unit *= 2
    return _widen(size, exact, unit)


def _widen(size: int, runs: list[tuple[int, int]], unit: int) -> list[tuple[int, int]]:
    widened: list[tuple[int, int]] = []
    for offset, length in runs:
        start, end = offset & -unit, min(round_up(offset + length, unit), size)
        if widened and sum(widened[-1]) >= start:
            start = widened.pop()[0]
        widened.append((start, end - start))
    return widened


def chunk_bits(size: int, edges: int) -> int:
    """Log2 of the blocks in the largest chunk that fits.

    `edges` is the bitwise or of the offsets of all edges inside the file; 0 when there is none.
    """
    whole = (-(-size // BLOCK_SIZE) - 1).bit_length() if size else 0
    aligned = (edges & -edges).bit_length() - 1 - BLOCK_BITS if edges else whole
    return min(whole, aligned, MAX_CHUNK_BITS)


def chunk_count(size: int, bits: int) -> int:
    """How many chunks of 2^`bits` blocks a file of `size` bytes has."""
    return -(-size >> BLOCK_BITS + bits)


def join(size: int, extents: Sequence[Extent]) -> tuple[list[Extent], int]:
    """Extents, joined where they touch in file and device, and their edges for `chunk_bits`.

    Raises ValueError when they are not sorted and aligned or leave the file.
    """
    joined: list[Extent] = []
    end = edges = 0
    for extent in extents:
        start = extent.file_offset
        if start < end or extent.length <= 0 or (start | extent.device_offset) % BLOCK_SIZE:
            raise ValueError(f"extents are not sorted and aligned to {BLOCK_SIZE} bytes")
        if joined and start == end and _end_on_device(joined[-1]) == extent.device_offset:
            before = joined.pop()
            extent = Extent(before.file_offset, before.device_offset, before.length + extent.length)
        joined.append(extent)
        end = extent.file_offset + extent.length
        if end > round_up(size, BLOCK_SIZE) or (end % BLOCK_SIZE and end != size):
            raise ValueError("an extent ends behind its file or inside a block")
    for extent in joined:
        edges |= extent.file_offset | _inner_end(size, extent.file_offset + extent.length)
    return joined, edges


def _end_on_device(extent: Extent) -> int:
    return extent.device_offset + extent.length


def _inner_end(size: int, end: int) -> int:
    """The end of a run as an edge: the end of the file is none."""
    return end if end < size else 0
