"""Which chunks are worth one request when it is known beforehand that all are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dsec_layers.chunks.table import Chunk, ChunkTable

# At 20 ms a request and 100 MB/s, two megabytes cost as much as one more request. Of the start of a
# Python in a real environment 2.5 MiB, and spans of 16, left 11 of 15 requests for a third more
# bytes; 4 MiB left 10 for more than half.
GAP_BYTES: Final = 5 << 19
SPAN_BYTES: Final = 16 << 20
PLAIN_BYTES: Final = 32 << 20
BATCH_BYTES: Final = 64 << 20  # of plain chunks are looked at together


def span_bytes(group: Sequence[int], table: ChunkTable) -> int:
    """How much of its pack a group of `grouped` takes, gaps and all."""
    first, last = table[group[0]], table[group[-1]]
    return last.pack_offset + last.stored_length - first.pack_offset


def grouped(chunks: Iterable[tuple[int, Chunk]], plain_bytes: int = PLAIN_BYTES) -> list[list[int]]:
    """The numbers of chunks of one layer, in groups that lie together in a pack, in pack order.

    A group spans at most SPAN_BYTES of its pack, gaps of at most GAP_BYTES among them, and holds at
    most `plain_bytes` when it is unpacked; a single chunk may be larger.
    """
    groups: list[list[int]] = []
    start = end = plain = 0
    pack = -1
    ordered = sorted(chunks, key=lambda each: (each[1].pack, each[1].pack_offset, each[0]))
    for index, chunk in ordered:
        chunk_end = chunk.pack_offset + chunk.stored_length
        if (
            chunk.pack == pack
            and chunk.pack_offset - end <= GAP_BYTES
            and chunk_end - start <= SPAN_BYTES
            and plain + chunk.length <= plain_bytes
        ):
            groups[-1].append(index)
        else:
            groups.append([index])
            pack, start, plain = chunk.pack, chunk.pack_offset, 0
        end = chunk_end
        plain += chunk.length
    return groups
