"""Which chunks are worth one request when it is known beforehand that all are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsec_layers.chunks.table import Chunk

# At 20 ms a request and 100 MB/s, two megabytes cost as much as one more request.
GAP_BYTES: Final = 1 << 20
SPAN_BYTES: Final = 8 << 20
PLAIN_BYTES: Final = 16 << 20
BATCH_BYTES: Final = 64 << 20  # of plain chunks are looked at together


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
