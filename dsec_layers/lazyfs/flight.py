"""A chunk on its way from a store."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from dsec_layers.chunks.table import Chunk
from dsec_layers.errors import StoreError
from dsec_layers.lazyfs.job import Job
from dsec_layers.lazyfs.lane import Lane
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.stores import Search, StoreChain
from dsec_layers.model.manifest import Descriptor

Plain = bytes | memoryview
Key = tuple[tuple[str, ...], bytes]


class Crew(Protocol):
    """Who sees to flights."""

    def gather(self, first: Flight, lane: Lane) -> Job[bytes]:
        """It is the turn of this flight: a request for it and its neighbours."""
        ...

    def passed_over(self, flights: Sequence[Flight], error: StoreError) -> None:
        """The store is not asked for these."""
        ...


@dataclass(slots=True, eq=False)
class Flight:
    """Somebody waits for it (`wanted`), or it is worth a request of its own (`kept`), or neither.

    `place` is that of the store that is asked or comes next, `lane` where it waits. A request for
    it takes along the others of `group`, or else its neighbours, unless it is `alone`.
    """

    crew: Crew
    layer: ServedLayer
    index: int
    chunk: Chunk
    stores: StoreChain
    wanted: bool
    kept: bool
    future: Future[Plain] = field(default_factory=Future)
    group: Sequence[Flight] = ()
    alone: bool = False
    place: int = 0
    lane: Lane | None = None
    key: Key = field(init=False)
    search: Search = field(init=False)

    def __post_init__(self) -> None:
        self.key = flight_key(self.layer, self.chunk)
        self.search = Search(self.stores, self.pack)

    @property
    def pack(self) -> Descriptor:
        """Where it comes from."""
        return self.layer.packs[self.chunk.pack]

    def seat(self, index: int) -> Hashable:
        """The key of chunk number `index` in a queue, among those with the same stores."""
        return self.stores, index

    def board(self) -> Job[bytes]:
        """See Waiting."""
        lane, self.lane = self.lane, None
        assert lane is not None
        return self.crew.gather(self, lane)

    def refuse(self, error: StoreError) -> None:
        """See Waiting."""
        self.crew.passed_over([self], error)


def flight_key(layer: ServedLayer, chunk: Chunk) -> Key:
    """Layers with the same stores share flights; others must not share their failures."""
    return layer.stores.urls, chunk.digest


def span(run: Sequence[Flight]) -> tuple[int, int]:
    """Offset and length in their pack of neighbours in order."""
    first, last = run[0].chunk, run[-1].chunk
    return first.pack_offset, last.pack_offset + last.stored_length - first.pack_offset


def frames(run: Sequence[Flight], data: bytes) -> list[memoryview]:
    """The stored form of each of them in the bytes of their span."""
    view, start = memoryview(data), run[0].chunk.pack_offset
    starts = [flight.chunk.pack_offset - start for flight in run]
    return [
        view[at : at + flight.chunk.stored_length] for at, flight in zip(starts, run, strict=True)
    ]
