"""Fetching what a trace says will be read, behind all that is read already.

A start takes the chunks of its trace in order, some megabytes at a time, and of these, those that
lie together in a pack by one request; the group with the earliest chunk goes first. In the queue of
a store such a request stands behind all that somebody waits for. Whoever asks for one of its chunks
meanwhile waits for the whole of it, and asks for none himself; so many of them stand there at once,
but they take no more than `_AT_ONCE_BYTES` together, packed or unpacked, or one that is larger.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dsec_layers.chunks.table import Chunk
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.grouping import BATCH_BYTES, grouped, span_bytes
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.protocol import Start
from dsec_layers.lazyfs.traces import TraceFiles
from dsec_layers.model.digest import Digest

AUTO_BYTES: Final = 512 << 20
_CACHE_SHARE: Final = 4  # one part in so many of the cache, at most, whatever is asked for
_WORKERS: Final = 16
_AT_ONCE_BYTES: Final = 32 << 20
_STARTS: Final = 256
_log = logging.getLogger(__name__)


class _Wanted(NamedTuple):
    rank: tuple[int, int]
    layer: str
    number: int


@dataclass(slots=True)
class _Job:
    """What one start still wants, and how many bytes it may."""

    environment: str
    left_bytes: int
    layers: dict[str, ServedLayer] = field(default_factory=dict)
    wanted: list[_Wanted] = field(default_factory=list)

    def drop(self, layer: str) -> None:
        if self.layers.pop(layer, None) is not None:
            self.wanted = [each for each in self.wanted if each.layer != layer]
            heapq.heapify(self.wanted)


class Prefetcher:
    """Prefetches for the starts it is told of. Safe for many threads."""

    def __init__(self, fetcher: Fetcher, files: TraceFiles, cache_limit_bytes: int) -> None:
        self._fetcher = fetcher
        self._files = files
        self._most_bytes = cache_limit_bytes // _CACHE_SHARE
        self._state = threading.Condition()
        self._room = threading.Condition()
        self._under_way = 0
        self._new: deque[tuple[Start, ServedLayer]] = deque()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self._thread.start()

    def attached(self, layers: Iterable[ServedLayer], start: Start) -> None:
        """`start` mounts `layers`; returns at once."""
        if start.prefetch_bytes != 0:
            with self._state:
                self._new.extend((start, layer) for layer in layers)
                self._state.notify_all()

    def detached(self, digest: Digest) -> None:
        """Want nothing more of a layer."""
        name = str(digest)
        with self._state:
            self._new = deque(each for each in self._new if each[1].digest != digest)
            for job in self._jobs.values():
                job.drop(name)

    def drain(self) -> None:
        """Wait until nothing more is wanted."""
        with self._state:
            self._state.wait_for(lambda: self._closed or not (self._busy or self._new))

    def close(self) -> None:
        """End after the requests under way."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        self._thread.join()

    def _work(self) -> None:
        with ThreadPoolExecutor(_WORKERS, "prefetch") as pool:
            while self._wait():
                try:
                    self._take_in()
                    self._round(pool)
                except Exception:  # whatever it is, reads go on without
                    _log.exception("prefetching failed in an unforeseen way")
                    with self._state:
                        self._jobs.clear()

    def _wait(self) -> bool:
        with self._state:
            self._busy = any(job.wanted for job in self._jobs.values())
            if not self._busy and not self._new:
                self._state.notify_all()
            self._state.wait_for(lambda: self._closed or self._busy or self._new)
            self._busy = True
            return not self._closed

    def _take_in(self) -> None:
        """Find out what those that have just come want; read from files, so without the lock."""
        with self._state:
            new, self._new = self._new, deque()
        for start, layer in new:
            name = str(layer.digest)
            part = self._files.part(start.environment, name)
            if part is None:
                continue
            wanted = [
                _Wanted(part.rank(touch), name, touch.chunk)
                for touch in part.touches
                if touch.chunk < len(layer.table)
            ]
            with self._state:
                job = self._job(start)
                if name not in job.layers:
                    job.layers[name] = layer
                    job.wanted += wanted
                    heapq.heapify(job.wanted)

    def _job(self, start: Start) -> _Job:
        job = self._jobs.get(start.id)
        if job is None:
            asked = AUTO_BYTES if start.prefetch_bytes is None else start.prefetch_bytes
            job = self._jobs[start.id] = _Job(start.environment, min(asked, self._most_bytes))
            if len(self._jobs) > _STARTS:
                self._jobs.popitem(last=False)
        return job

    def _round(self, pool: ThreadPoolExecutor) -> None:
        """A batch of every start, one after another."""
        for job in list(self._jobs.values()):
            batch = self._batch(job)
            got = pool.map(lambda each: self._fetch(*each), batch)
            if not all(list(got)):
                _log.warning("prefetching for %s ends: the store fails", job.environment)
                job.wanted = []

    def _fetch(self, layer: ServedLayer, group: list[int]) -> bool:
        plain = sum(layer.table[index].length for index in group)
        size = min(_AT_ONCE_BYTES, max(plain, span_bytes(group, layer.table)))
        with self._room:
            self._room.wait_for(lambda: self._under_way + size <= _AT_ONCE_BYTES)
            self._under_way += size
        try:
            return self._fetcher.fetch_ahead(layer, group)
        finally:
            with self._room:
                self._under_way -= size
                self._room.notify_all()

    def _batch(self, job: _Job) -> list[tuple[ServedLayer, list[int]]]:
        with self._state:
            found: dict[str, list[tuple[int, Chunk]]] = {}
            places: dict[tuple[str, int], int] = {}
            for layer, index, chunk in self._next(job):
                found.setdefault(layer, []).append((index, chunk))
                places[layer, index] = len(places)
            groups = [
                (min(places[layer, index] for index in group), layer, group)
                for layer, chunks in found.items()
                for group in grouped(chunks)
            ]
            return [(job.layers[layer], group) for _, layer, group in sorted(groups)]

    def _next(self, job: _Job) -> Iterator[tuple[str, int, Chunk]]:
        """The chunks that `job` wants next and that are not here, within its budget."""
        taken = 0
        while job.wanted and taken < BATCH_BYTES:
            _, layer, index = heapq.heappop(job.wanted)
            chunk = job.layers[layer].table[index]
            if self._fetcher.has(chunk.digest):
                continue
            if chunk.length > job.left_bytes:
                job.wanted = []
                return
            job.left_bytes -= chunk.length
            taken += chunk.length
            yield layer, index, chunk
