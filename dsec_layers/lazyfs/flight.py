"""A chunk on its way from a store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dsec_layers.chunks.table import Chunk
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.stores import StoreChain

Plain = bytes | memoryview


@dataclass(slots=True, eq=False)
class Flight:
    """A chunk that is to be fetched from `stores`. `wanted`: somebody waits for it."""

    layer: ServedLayer
    index: int
    chunk: Chunk
    stores: StoreChain
    wanted: bool
    future: Future[Plain] = field(default_factory=Future)

    @property
    def key(self) -> tuple[tuple[str, ...], bytes]:
        """Layers with the same stores share flights; others must not share their failures."""
        return self.stores.urls, self.chunk.digest


def read_frames(run: Sequence[Flight]) -> list[memoryview]:
    """The stored bytes of chunks of one pack, in its order, by one request.

    Raises NotFoundError, CorruptError or StoreError.
    """
    first, last = run[0], run[-1]
    start = first.chunk.pack_offset
    end = last.chunk.pack_offset + last.chunk.stored_length
    pack = first.layer.packs[first.chunk.pack]
    data = memoryview(first.stores.read(pack, start, end - start))
    starts = [flight.chunk.pack_offset - start for flight in run]
    return [
        data[at : at + flight.chunk.stored_length] for at, flight in zip(starts, run, strict=True)
    ]
