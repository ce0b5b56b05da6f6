"""Fetching chunks: each once however many wait for it, neighbours together, checked, kept.

A chunk that is wanted and not at hand is a flight. It waits in the lane of the first store that may
have it; when its turn comes, neighbours in the same pack that wait too go with it, and neighbours
that nobody waits for yet (read-ahead), all in one range request. A store that cannot give them is
passed over for the next one. A flight ends when its chunk is in the cache (landing.py), so nobody
can miss both.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from dsec_layers.chunks.table import Chunk
from dsec_layers.errors import CorruptError, DsecError, NotFoundError, StoreError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.flight import Flight, Key, Plain, flight_key, span
from dsec_layers.lazyfs.gathering import FetchLimits, Gatherer
from dsec_layers.lazyfs.job import Job
from dsec_layers.lazyfs.landing import Landings
from dsec_layers.lazyfs.lane import Lane
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.partreads import PartReads
from dsec_layers.lazyfs.stores import checked_length

_REMEMBERED: Final = 1024  # flights that have ended
_log = logging.getLogger(__name__)


class Fetcher:
    """Gets chunks from memory, the cache on disk, or the stores. Safe for many threads."""

    def __init__(
        self,
        cache: ChunkCache,
        memory: MemoryChunks,
        lanes: Lanes,
        limits: FetchLimits | None = None,
    ) -> None:
        self._cache = cache
        self._memory = memory
        self._lanes = lanes
        self._lock = lanes.lock
        self._all_ended = threading.Condition(lanes.lock)
        self._parts = PartReads()
        self._flights: dict[Key, Flight] = {}
        self._ended: OrderedDict[Key, None] = OrderedDict()
        self._gatherer = Gatherer(limits or FetchLimits(), self._ahead)
        self._landings = Landings(cache, memory, self._landed, self._fail)
        self._closed = False

    def at_hand(
        self, layer: ServedLayer, chunk: Chunk, start: int = 0, end: int | None = None
    ) -> Plain | None:
        """The bytes `start` to `end` of a chunk from memory or the cache.

        None when it must be fetched, corrupt entries too; also while it is on its way: it is not in
        the cache before its flight ends, and to look there would let other threads in.
        """
        end = chunk.length if end is None else end
        plain = self._memory.get(chunk.digest)
        if plain is not None:
            return plain if end - start == chunk.length else memoryview(plain)[start:end]
        if flight_key(layer, chunk) in self._flights:
            return None
        try:
            return self._load(chunk, start, end)
        except CorruptError as error:
            _log.warning("%s; fetching it again", error)
            layer.counters.add(corrupt_entries=1)
            return None

    def _load(self, chunk: Chunk, start: int, end: int) -> Plain | None:
        """From the cache; whole and into memory when the rest will be read soon."""
        if not self._parts.goes_on(chunk, start, end):
            return self._cache.load(chunk.digest, chunk.length, start, end)
        plain = self._cache.load(chunk.digest, chunk.length)
        if plain is None:
            return None
        self._memory.put(chunk.digest, plain)
        return plain[start:end]

    def want(self, layer: ServedLayer, chunks: Iterable[tuple[int, Chunk]]) -> list[Future[Plain]]:
        """Futures of chunks by their number. Each ends with the checked bytes, or a DsecError."""
        with self._lock:
            return [self._board(layer, index, chunk).future for index, chunk in chunks]

    def start_ahead(self, layer: ServedLayer, indexes: Iterable[int]) -> list[Flight]:
        """Fetch chunks of one pack that nobody asks for, by one request; returns at once.

        What somebody asks for goes before. What is here or on its way is left out.
        """
        # Looked for in the cache without the lock: every call to the system lets other threads in,
        # which would all come to wait for it.
        absent = [index for index in indexes if not self._is_here(layer, index)]
        with self._lock:
            if self._closed:
                return []
            found = [self._new(layer, index, kept=True) for index in absent]
            run = [flight for flight in found if flight is not None]
            for flight in run:
                flight.group = run
            refused = [(flight, self._queue(flight)) for flight in run]
        for flight, error in refused:
            if error is not None:
                self._fail([flight], error)
        return run

    def fetch_ahead(self, layer: ServedLayer, indexes: Iterable[int]) -> bool:
        """The same, but wait for them; False when nothing came of what was to come."""
        run = self.start_ahead(layer, indexes)
        wait([flight.future for flight in run])
        return not run or any(flight.future.exception() is None for flight in run)

    def has(self, digest: bytes) -> bool:
        """Whether a chunk is at hand, which may prove wrong when it is read."""
        return digest in self._memory or self._cache.has(digest)

    def in_flight(self) -> Counter[ServedLayer]:
        """How many chunks of each layer are on their way."""
        with self._lock:
            return Counter(flight.layer for flight in self._flights.values())

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is being fetched or written to the cache, or for `timeout_s`."""
        with self._lock:
            self._all_ended.wait_for(lambda: not self._flights, timeout_s)

    def halt(self) -> None:
        """Take no more flights, and see what has come into the cache. Who waits waits on."""
        with self._lock:
            self._closed = True
            self._lanes.halt()
        self._landings.wait()

    def close(self) -> None:
        """End the threads after what they are doing; who still waits gets StoreError."""
        with self._lock:
            self._closed = True
        self._lanes.close()

    def gather(self, first: Flight, lane: Lane) -> Job[bytes]:
        """See Crew."""
        run = self._gatherer.run(first, lane)
        pack, (start, length) = first.pack, span(run)
        return Job(
            ask=lambda store: store.read(pack, start, length),
            probe=lambda store: store.read(pack, start, 1),
            length=length,
            counters=first.stores.counters,
            answered=partial(self._land, run),
            failed=partial(self._unanswered, run, lane),
        )

    def passed_over(self, flights: Sequence[Flight], error: DsecError) -> None:
        """See Crew: on to the next store, and what nobody waits for is forgotten."""
        failed = []
        with self._lock:
            for flight in flights:
                if not flight.kept:
                    self._remove(flight)
                    continue
                flight.search.in_vain(error)
                flight.place += 1
                if (final := self._queue(flight)) is not None:
                    failed.append((flight, final))
        for flight, final in failed:
            self._fail([flight], final)

    def _board(self, layer: ServedLayer, index: int, chunk: Chunk) -> Flight:
        under_way = self._flights.get(flight_key(layer, chunk))
        if under_way is not None:
            if under_way.lane is not None and not under_way.wanted:
                under_way.lane.queue.hurry(under_way.layer, under_way.seat(under_way.index))
            under_way.wanted = under_way.kept = True
            return under_way
        flight = Flight(self, layer, index, chunk, layer.stores, wanted=True, kept=True)
        # Looked up again if a flight of it has just ended unseen.
        plain = self.at_hand(layer, chunk) if flight.key in self._ended else None
        if plain is not None:
            flight.future.set_result(plain)
        elif (refused := self._queue(flight)) is not None:
            flight.future.set_exception(refused)
        else:
            self._flights[flight.key] = flight
        return flight

    def _ahead(self, layer: ServedLayer, index: int) -> Flight | None:
        return None if self._is_here(layer, index) else self._new(layer, index, kept=False)

    def _is_here(self, layer: ServedLayer, index: int) -> bool:
        """Whether a chunk is at hand or on its way."""
        chunk = layer.table[index]
        return self._is_near(layer, chunk) or self._cache.has(chunk.digest)

    def _is_near(self, layer: ServedLayer, chunk: Chunk) -> bool:
        """The same as far as one can tell without looking into the cache."""
        return flight_key(layer, chunk) in self._flights or chunk.digest in self._memory

    def _new(self, layer: ServedLayer, index: int, *, kept: bool) -> Flight | None:
        chunk = layer.table[index]
        if self._is_near(layer, chunk):
            return None
        flight = Flight(self, layer, index, chunk, layer.stores, wanted=False, kept=kept)
        self._flights[flight.key] = flight
        return flight

    def _queue(self, flight: Flight) -> DsecError | None:
        """Let it wait for the next store that may have it; why that is impossible, if it is."""
        urls, pack = flight.stores.urls, flight.pack.digest
        while flight.place < len(urls):
            lane = self._lanes.lane(urls[flight.place])
            if flight.place == len(urls) - 1 or not lane.lacks(pack):
                flight.lane = lane
                seat = flight.seat(flight.index)
                refused = lane.push(flight.layer, seat, flight, urgent=flight.wanted)
                if refused is None:
                    return None
                flight.lane = None
                flight.search.in_vain(refused)
            flight.place += 1
        return flight.search.error()

    def _unanswered(self, run: list[Flight], lane: Lane, error: DsecError) -> None:
        if isinstance(error, NotFoundError):
            with self._lock:
                lane.note_absent(run[0].pack.digest)
        if isinstance(error, NotFoundError | StoreError):
            self.passed_over(run, error)
        else:
            self._spoilt(run, error)

    def _spoilt(self, run: list[Flight], error: DsecError) -> None:
        """One broken neighbour must not spoil the rest of a request."""
        if len(run) == 1:
            self._fail(run, error)
            return
        with self._lock:
            for flight in run:
                flight.alone = True
                flight.place -= 1
        self.passed_over(run, error)

    def _land(self, run: list[Flight], data: bytes) -> None:
        first = run[0]
        try:
            checked_length(data, span(run)[1], first.pack, first.stores.counters)
        except CorruptError as error:
            self._spoilt(run, error)
            return
        self._landings.land(run, data)

    def _landed(self, flights: Sequence[Flight]) -> None:
        with self._lock:
            for flight in flights:
                self._remove(flight)

    def _fail(self, flights: Sequence[Flight], error: DsecError) -> None:
        for flight in flights:
            with self._lock:
                self._remove(flight)
            if not flight.future.done():
                _log.error(
                    "chunk %d of layer %s cannot be read: %s",
                    flight.index,
                    flight.layer.digest,
                    error,
                )
                flight.future.set_exception(error)

    def _remove(self, flight: Flight) -> None:
        flight.group = ()  # a ring would be freed late, and the bytes of all with it
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
            self._ended[flight.key] = None
            if len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
        if not self._flights:
            self._all_ended.notify_all()
