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
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.table import Chunk
from dsec_layers.errors import CorruptError, DsecError, StoreError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.readahead import ReadAhead
from dsec_layers.lazyfs.stores import StoreChain

Plain = bytes | memoryview
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


@dataclass(slots=True, eq=False)
class _Flight:
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
        self._flights: dict[tuple[tuple[str, ...], bytes], _Flight] = {}
        self._waiting: OrderedDict[tuple[ServedLayer, int], _Flight] = OrderedDict()
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

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is being fetched or written to the cache, or for `timeout_s`."""
        with self._state:
            self._all_ended.wait_for(lambda: not self._flights, timeout_s)

    def halt(self) -> None:
        """Take no more flights, and see what has come into the cache. Who waits waits on."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            self._all_ended.wait_for(lambda: not self._keeping)

    def close(self) -> None:
        """End the workers after what they are doing; who still waits gets StoreError."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        for worker in self._workers:
            worker.join()
        self._fail(list(self._waiting.values()), StoreError("the daemon is stopping"))

    def _board(self, layer: ServedLayer, index: int, chunk: Chunk) -> _Flight:
        flight = _Flight(layer, index, chunk, layer.stores, wanted=True)
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

    def _take(self) -> list[_Flight]:
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
            return run

    def _neighbours(
        self, run: Sequence[_Flight], step: int, most_bytes: int, *, ahead: bool
    ) -> Iterator[_Flight]:
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

    def _ahead(self, layer: ServedLayer, index: int, chunk: Chunk) -> _Flight | None:
        flight = _Flight(layer, index, chunk, layer.stores, wanted=False)
        if flight.key in self._flights or self._has(chunk.digest):
            return None
        self._flights[flight.key] = flight
        return flight

    def _has(self, digest: bytes) -> bool:
        return self._memory.get(digest) is not None or self._cache.has(digest)

    def _fetch(self, run: list[_Flight]) -> None:
        try:
            frames = self._frames(run)
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

    def _keep(self, flights: Sequence[_Flight]) -> None:
        for flight in flights:
            kept = self._cache.store(flight.chunk.digest, flight.future.result())
            flight.layer.counters.add(uncached_chunks=not kept)
            self._end(flight)

    def _fetch_singly(self, run: list[_Flight]) -> None:
        """One broken neighbour must not spoil the rest of a request."""
        for flight in run:
            with self._state:
                wanted = flight.wanted
                if not wanted:
                    self._remove(flight)
            if wanted:
                self._fetch([flight])

    def _frames(self, run: Sequence[_Flight]) -> list[memoryview]:
        first, last = run[0], run[-1]
        start = first.chunk.pack_offset
        end = last.chunk.pack_offset + last.chunk.stored_length
        pack = first.layer.packs[first.chunk.pack]
        data = memoryview(first.stores.read(pack, start, end - start))
        starts = [flight.chunk.pack_offset - start for flight in run]
        return [
            data[at : at + flight.chunk.stored_length]
            for at, flight in zip(starts, run, strict=True)
        ]

    def _arrive(self, flight: _Flight, frame: memoryview) -> bool:
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

    def _fail(self, flights: Sequence[_Flight], error: DsecError) -> None:
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

    def _end(self, flight: _Flight) -> None:
        with self._state:
            self._remove(flight)

    def _remove(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if not self._flights:
            self._all_ended.notify_all()
