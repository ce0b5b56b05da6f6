"""Which chunks one request brings: the one whose turn it is, neighbours that wait, read-ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from dsec_layers.chunks.table import Chunk
from dsec_layers.lazyfs.flight import Flight
from dsec_layers.lazyfs.lane import Lane
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.readahead import ReadAhead

# A new flight of this chunk of a layer, unless it is at hand or on its way.
Ahead = Callable[[ServedLayer, int], Flight | None]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`most_bytes` bounds the plain bytes of one range request, `least_bytes` is worth one.

    At 5 ms a request and 100 MB/s, half a megabyte costs as much as one more request. `gap_bytes`
    of a pack that nobody wants are read over rather than asked around.
    """

    least_bytes: int = 512 << 10
    most_bytes: int = 4 << 20
    gap_bytes: int = 32 << 10


class Gatherer:
    """Puts runs of flights together; the lock of the lanes is held."""

    def __init__(self, limits: FetchLimits, ahead: Ahead) -> None:
        self._limits = limits
        self._ahead = ahead
        # Of each store, for a store that lacks a pack sees requests that the next one sees again.
        self._streams: WeakKeyDictionary[ServedLayer, dict[Lane, ReadAhead]] = WeakKeyDictionary()

    def run(self, first: Flight, lane: Lane) -> list[Flight]:
        """The flights that go with `first`, and itself, in pack order."""
        if first.alone:
            return [first]
        if first.group:
            others = (self._waiting(lane, first, flight.index) for flight in first.group)
            run = [first, *(flight for flight in others if flight is not None)]
            return sorted(run, key=lambda flight: flight.chunk.pack_offset)
        most_bytes = self._limits.most_bytes
        before = list(self._neighbours([first], -1, most_bytes, lane))
        run = [*reversed(before), first]
        run += self._neighbours(run, 1, most_bytes, lane)
        if any(flight.wanted for flight in run):
            self._read_ahead(run, lane)
        return run

    def _read_ahead(self, run: list[Flight], lane: Lane) -> None:
        limits = self._limits
        streams = self._streams.setdefault(run[0].layer, {}).setdefault(
            lane, ReadAhead(limits.least_bytes, limits.most_bytes)
        )
        window = streams.window(run[0].index)
        run += self._neighbours(run, 1, window, None)
        streams.ended(run[-1].index + 1, window)

    def _neighbours(
        self, run: Sequence[Flight], step: int, most_bytes: int, lane: Lane | None
    ) -> Iterator[Flight]:
        """Those after (or before) a run, as long as one request may carry them all.

        They are taken out of the queue of `lane`; without one they are new.
        """
        last = run[-1 if step > 0 else 0]
        layer, table = last.layer, last.layer.table
        held = sum(flight.chunk.length for flight in run)
        index, chunk = last.index + step, last.chunk
        while 0 <= index < len(table):
            following = table[index]
            held += following.length
            if held > most_bytes or not self._adjoin(chunk, following, step):
                return
            flight = self._waiting(lane, last, index) if lane else self._ahead(layer, index)
            if flight is None:
                return
            yield flight
            index, chunk = index + step, following

    @staticmethod
    def _waiting(lane: Lane, like: Flight, index: int) -> Flight | None:
        flight = lane.queue.take(like.layer, like.seat(index))
        if not isinstance(flight, Flight):
            return None
        if flight.alone:
            lane.queue.push(like.layer, like.seat(index), flight, urgent=flight.wanted)
            return None
        flight.lane = None
        return flight

    def _adjoin(self, chunk: Chunk, following: Chunk, step: int) -> bool:
        low, high = (chunk, following) if step > 0 else (following, chunk)
        gap = high.pack_offset - low.pack_offset - low.stored_length
        return low.pack == high.pack and 0 <= gap <= self._limits.gap_bytes
