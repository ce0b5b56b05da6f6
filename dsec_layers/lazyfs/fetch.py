"""Fetching chunks: each once however many wait for it, neighbours together, checked, kept.

A chunk that is wanted and not at hand is a flight. A worker takes the oldest flight and with it
the neighbours in the same pack that wait too, adds neighbours that nobody waits for yet
(read-ahead), and gets them all in one range request. Whoever waits is served before the chunks are
written to the cache; only then does a flight end, so nobody can miss both.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.table import Chunk
from dsec_layers.errors import CorruptError, DsecError, StoreError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.flight import Flight, Plain, read_frames
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.readahead import ReadAhead

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`most_bytes` bounds the plain bytes of one range request, `least_bytes` is worth one.

    At 5 ms a request and 100 MB/s, half a megabyte costs as much as one more request. `gap_bytes`
    of a pack that nobody wants are read over rather than asked around.
    """

    workers: int = 24
    least_bytes: int = 512 << 10
    most_bytes: int = 4 << 20
    gap_bytes: int = 32 << 10


class Fetcher:
    """Gets chunks from memory, the cache on disk, or the stores. Safe for many threads."""

    def __init__(
        self,
        cache: ChunkCache,
        memory: MemoryChunks,
        limits: FetchLimits = FetchLimits(),
    ) -> None:
        self._cache = cache
        self._memory = memory
        self._limits = limits
        lock = threading.Lock()
        self._state = threading.Condition(lock)
        self._all_ended = threading.Condition(lock)
        self._none_waits = threading.Condition(lock)
        self._flights: dict[tuple[tuple[str, ...], bytes], Flight] = {}
        self._waiting: OrderedDict[tuple[ServedLayer, int], Flight] = OrderedDict()
        self._streams: WeakKeyDictionary[ServedLayer, ReadAhead] = WeakKeyDictionary()
        self._keeping = 0
        self._closed = False
        self._workers = [
            threading.Thread(target=self._work, name=f"fetch-{number}", daemon=True)
            for number in range(limits.workers)
        ]
        for worker in self._workers:
            worker.start()

    def at_hand(self, layer: ServedLayer, chunk: Chunk, *, keep: bool) -> Plain | None:
        """The chunk from memory or the cache; None when it must be fetched, corrupt entries too.

        With `keep` it goes into memory, for the rest of it will be read soon.
        """
        plain = self._memory.get(chunk.digest)
        if plain is not None:
            return plain
        try:
            plain = self._cache.load(chunk.digest, chunk.length)
        except CorruptError as error:
            _log.warning("%s; fetching it again", error)
            layer.counters.add(corrupt_entries=1)
            return None
        if plain is not None and keep:
            self._memory.put(chunk.digest, plain)
        return plain

    def want(self, layer: ServedLayer, chunks: Iterable[tuple[int, Chunk]]) -> list[Future[Plain]]:
        """Futures of chunks by their number. Each ends with the checked bytes, or a DsecError."""
        futures = []
        with self._state:
            for index, chunk in chunks:
                futures.append(self._board(layer, index, chunk).future)
            self._state.notify(len(futures))
        return futures

    def fetch_ahead(self, layer: ServedLayer, indexes: Iterable[int]) -> bool:
        """Fetch chunks of one pack that nobody asks for, by one request in this thread.

        First it waits until nobody waits for a worker. What is here or on its way is left out.
        False when nothing came of what was to come.
        """
        with self._state:
            self._none_waits.wait_for(lambda: self._closed or not self._waiting)
            if self._closed:
                return True
            found = (self._ahead(layer, index, layer.table[index]) for index in indexes)
            run = [flight for flight in found if flight is not None]
        if run:
            self._fetch(run)
        return not run or any(each.future.done() and not each.future.exception() for each in run)

    def has(self, digest: bytes) -> bool:
        """Whether a chunk is at hand, which may prove wrong when it is read."""
        return self._memory.get(digest) is not None or self._cache.has(digest)

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is being fetched or written to the cache, or for `timeout_s`."""
        with self._state:
            self._all_ended.wait_for(lambda: not self._flights, timeout_s)

    def halt(self) -> None:
        """Take no more flights, and see what has come into the cache. Who waits waits on."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            self._none_waits.notify_all()
            self._all_ended.wait_for(lambda: not self._keeping)

    def close(self) -> None:
        """End the workers after what they are doing; who still waits gets StoreError."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            self._none_waits.notify_all()
        for worker in self._workers:
            worker.join()
        self._fail(list(self._waiting.values()), StoreError("the daemon is stopping"))

    def _board(self, layer: ServedLayer, index: int, chunk: Chunk) -> Flight:
        flight = Flight(layer, index, chunk, layer.stores, wanted=True)
        under_way = self._flights.get(flight.key)
        if under_way is not None:
            under_way.wanted = True
            return under_way
        # Looked up again, now that no flight of it can end unseen.
        plain = self.at_hand(layer, chunk, keep=True)
        if plain is not None:
            flight.future.set_result(plain)
        else:
            self._flights[flight.key] = self._waiting[layer, index] = flight
        return flight

    def _work(self) -> None:
        while run := self._take():
            try:
                self._fetch(run)
            except Exception as error:  # whatever it is, somebody waits for an answer
                _log.exception("fetching failed in an unforeseen way")
                self._fail(run, StoreError(f"fetching failed: {error}"))

    def _take(self) -> list[Flight]:
        """Wait for the oldest flight, take it and its neighbours in pack order; [] at the end."""
        with self._state:
            while not self._waiting and not self._closed:
                self._state.wait()
            if self._closed:
                return []
            _, first = self._waiting.popitem(last=False)
            layer = first.layer
            run = [first]
            before = list(self._neighbours(run, -1, self._limits.most_bytes, ahead=False))
            run = [*reversed(before), first]
            run += self._neighbours(run, 1, self._limits.most_bytes, ahead=False)
            streams = self._streams.setdefault(
                layer, ReadAhead(self._limits.least_bytes, self._limits.most_bytes)
            )
            window = streams.window(run[0].index)
            run += self._neighbours(run, 1, window, ahead=True)
            streams.ended(run[-1].index + 1, window)
            if not self._waiting:
                self._none_waits.notify_all()
            return run

    def _neighbours(
        self, run: Sequence[Flight], step: int, most_bytes: int, *, ahead: bool
    ) -> Iterator[Flight]:
        """Take the flights after (or before) a run, as long as one request may carry them all.

        With `ahead` these are new flights that nobody waits for.
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
            flight = (
                self._ahead(layer, index, following)
                if ahead
                else self._waiting.pop((layer, index), None)
            )
            if flight is None:
                return
            yield flight
            index, chunk = index + step, following

    def _adjoin(self, chunk: Chunk, following: Chunk, step: int) -> bool:
        low, high = (chunk, following) if step > 0 else (following, chunk)
        gap = high.pack_offset - low.pack_offset - low.stored_length
        return low.pack == high.pack and 0 <= gap <= self._limits.gap_bytes

    def _ahead(self, layer: ServedLayer, index: int, chunk: Chunk) -> Flight | None:
        flight = Flight(layer, index, chunk, layer.stores, wanted=False)
        if flight.key in self._flights or self.has(chunk.digest):
            return None
        self._flights[flight.key] = flight
        return flight

    def _fetch(self, run: list[Flight]) -> None:
        try:
            frames = read_frames(run)
        except DsecError as error:
            if len(run) == 1 or isinstance(error, StoreError):
                self._fail(run, error)
            else:
                self._fetch_singly(run)
            return
        with self._state:
            self._keeping += 1
        try:
            self._keep([pair[0] for pair in zip(run, frames, strict=True) if self._arrive(*pair)])
        finally:
            with self._state:
                self._keeping -= 1
                self._all_ended.notify_all()

    def _keep(self, flights: Sequence[Flight]) -> None:
        for flight in flights:
            kept = self._cache.store(flight.chunk.digest, flight.future.result())
            flight.layer.counters.add(uncached_chunks=not kept)
            self._end(flight)

    def _fetch_singly(self, run: list[Flight]) -> None:
        """One broken neighbour must not spoil the rest of a request."""
        for flight in run:
            with self._state:
                wanted = flight.wanted
                if not wanted:
                    self._remove(flight)
            if wanted:
                self._fetch([flight])

    def _arrive(self, flight: Flight, frame: memoryview) -> bool:
        chunk = flight.chunk
        try:
            plain = decode_chunk(frame, chunk.length, chunk.digest)
        except DsecError as error:
            self._fail([flight], error)
            return False
        self._memory.put(chunk.digest, plain)
        flight.layer.counters.add(fetched_chunks=1, fetched_bytes=len(plain))
        flight.future.set_result(plain)
        return True

    def _fail(self, flights: Sequence[Flight], error: DsecError) -> None:
        for flight in flights:
            self._end(flight)
            if not flight.future.done():
                _log.error(
                    "chunk %d of layer %s cannot be read: %s",
                    flight.index,
                    flight.layer.digest,
                    error,
                )
                flight.future.set_exception(error)

    def _end(self, flight: Flight) -> None:
        with self._state:
            self._remove(flight)

    def _remove(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if not self._flights:
            self._all_ended.notify_all()
