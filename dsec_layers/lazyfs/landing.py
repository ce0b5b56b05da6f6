"""What a store has given: unpacked, checked, handed to whoever waits, written to the cache.

No more threads do that at a time than it takes to keep the processors busy: with more, each call to
the system of one lets in another, and they spend their time on taking turns. Whoever waits is
served before the chunks are written to the cache, unless so much is still to be written that memory
would fill with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.flight import Flight, Plain, frames
from dsec_layers.lazyfs.memory import MemoryChunks

_MOST_UNKEPT: Final = 16 << 20
_FLIGHT_BYTES: Final = 4096
_MOST_AT_ONCE: Final = 8  # the interpreter, which one at a time has, takes a quarter of their time


class Landings:
    """Safe for many threads.

    `ended` is told of flights that are in the cache, if that takes them; `failed` of one whose
    bytes are wrong.
    """

    def __init__(
        self,
        cache: ChunkCache,
        memory: MemoryChunks,
        ended: Callable[[Sequence[Flight]], None],
        failed: Callable[[Sequence[Flight], DsecError], None],
    ) -> None:
        self._cache = cache
        self._memory = memory
        self._ended = ended
        self._failed = failed
        at_once = max(2, min(_MOST_AT_ONCE, len(os.sched_getaffinity(0))))
        self._unpacking = threading.Semaphore(at_once)
        self._writing = threading.Semaphore(at_once)  # a slow disk must not hold up readers
        self._idle = threading.Condition()
        self._landing = 0
        self._unkept = 0

    def land(self, run: Sequence[Flight], data: bytes) -> None:
        """`data` is what a store has given for a run; its length has been checked."""
        with self._idle:
            self._landing += 1
        try:
            with self._unpacking:
                arrived, late = self._unpack(run, data)
            with self._writing:
                for flight in arrived if not late else ():
                    self._keep(flight, flight.future.result())
            self._ended(arrived)
        finally:
            with self._idle:
                self._unkept -= _size(run)
                self._landing -= 1
                self._idle.notify_all()

    def wait(self) -> None:
        """Until what has come is in the cache."""
        with self._idle:
            self._idle.wait_for(lambda: not self._landing)

    def _unpack(self, run: Sequence[Flight], data: bytes) -> tuple[list[Flight], bool]:
        """Those of a run that are sound, and whether they had to be written to the cache first."""
        with self._idle:
            late = self._unkept > _MOST_UNKEPT
            self._unkept += _size(run)
        pairs = zip(run, frames(run, data), strict=True)
        return [flight for flight, frame in pairs if self._arrive(flight, frame, late)], late

    def _arrive(self, flight: Flight, frame: memoryview, late: bool) -> bool:
        chunk = flight.chunk
        try:
            plain = decode_chunk(frame, chunk.length, chunk.digest)
        except DsecError as error:
            self._failed([flight], error)
            return False
        if late:
            self._keep(flight, plain)
        self._memory.put(chunk.digest, plain)
        flight.layer.counters.add(fetched_chunks=1, fetched_bytes=len(plain))
        flight.future.set_result(plain)
        return True

    def _keep(self, flight: Flight, plain: Plain) -> None:
        if not self._cache.store(flight.chunk.digest, plain):
            flight.layer.counters.add(uncached_chunks=1)


def _size(run: Sequence[Flight]) -> int:
    return sum(flight.chunk.length + _FLIGHT_BYTES for flight in run)
