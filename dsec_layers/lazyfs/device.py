"""The device of a layer: byte ranges out of chunks. All of a range or an error; never less."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from dsec_layers.chunks.table import Chunk
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.flight import Plain
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.readtimes import ReadTimes
from dsec_layers.lazyfs.streams import Share, Streams

BLOCK_BYTES = 4096
# Called once with the parts of the range in order, or with why there are none.
Finished = Callable[[Sequence[Plain], BaseException | None], None]


class LayerDevice:
    """Reads a layer's device. Safe for many threads."""

    def __init__(
        self,
        layer: ServedLayer,
        fetcher: Fetcher,
        times: ReadTimes | None = None,
        share: Share | None = None,
    ) -> None:
        self.layer = layer
        self._streams = Streams(layer, fetcher.start_ahead, share) if share else None
        self._times = times or ReadTimes()
        self.size_bytes = -(-layer.table.device_bytes // BLOCK_BYTES) * BLOCK_BYTES
        self._fetcher = fetcher

    def read(self, offset: int, length: int) -> list[Plain]:
        """`length` bytes at `offset`, less at the end of the device, as buffers; waits for them.

        Raises what fetching raises: NotFoundError, CorruptError, StoreError.
        """
        result: Future[list[Plain]] = Future()

        def finished(parts: Sequence[Plain], error: BaseException | None) -> None:
            result.set_exception(error) if error else result.set_result(list(parts))

        self.start_read(offset, length, finished)
        return result.result()

    def start_read(self, offset: int, length: int, finished: Finished) -> None:
        """As `read`, but calls `finished`: at once when all is at hand, else in another thread."""
        length = max(0, min(length, self.size_bytes - offset))
        began = time.monotonic()

        def timed(parts: Sequence[Plain], error: BaseException | None) -> None:
            finished(parts, error)
            self._times.ended(self.layer, offset, length, began, error)

        self._start(offset, length, timed)

    def _start(self, offset: int, length: int, finished: Finished) -> None:
        padding = max(0, offset + length - max(offset, self.layer.table.device_bytes))
        if length == padding:
            self.layer.counters.add(kernel_reads=1, kernel_bytes=length)
            finished([bytes(padding)] if padding else [], None)
            return
        reading = _Reading(offset, offset + length - padding, padding, finished)
        wanted = self.layer.table.covering(reading.start, reading.end - reading.start)
        missing = self._collect(reading, wanted)
        if missing:
            self._fetch(reading, wanted.start, missing)
        else:
            reading.finish()
        if self._streams is not None:  # behind what is waited for
            self._streams.read(wanted, missed=bool(missing))

    def _collect(self, reading: _Reading, wanted: range) -> list[tuple[int, Chunk]]:
        """Fill in what is at hand; returns the rest."""
        table, missing, cached_bytes = self.layer.table, [], 0
        if recording := self.layer.recording:
            recording.touch(wanted)
        for index in wanted:
            chunk = table[index]
            part = self._fetcher.at_hand(self.layer, chunk, *reading.within(chunk))
            if part is None:
                missing.append((index, chunk))
                reading.parts.append(b"")
            else:
                cached_bytes += len(part)
                reading.parts.append(part)
        self.layer.counters.add(
            kernel_reads=1,
            kernel_bytes=reading.length,
            cache_hits=len(wanted) - len(missing),
            cache_misses=len(missing),
            cache_bytes=cached_bytes,
        )
        return missing

    def _fetch(self, reading: _Reading, first: int, missing: list[tuple[int, Chunk]]) -> None:
        reading.missing = len(missing)
        futures = self._fetcher.want(self.layer, missing)
        for (index, chunk), future in zip(missing, futures, strict=True):
            future.add_done_callback(reading.arrival(index - first, chunk))


class _Reading:
    """One range on its way: its parts, and how many of them are still missing."""

    def __init__(self, start: int, end: int, padding: int, finished: Finished) -> None:
        self.start = start
        self.end = end
        self.parts: list[Plain] = []
        self.missing = 0
        self._padding = padding
        self._finished = finished
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    @property
    def length(self) -> int:
        """Of the whole range, bytes."""
        return self.end - self.start + self._padding

    def within(self, chunk: Chunk) -> tuple[int, int]:
        """From and to which byte of a chunk the range reaches."""
        at = chunk.device_offset
        return max(self.start - at, 0), min(self.end - at, chunk.length)

    def cut(self, chunk: Chunk, plain: Plain) -> Plain:
        """The part of a chunk that lies in the range."""
        low, high = self.within(chunk)
        return plain if high - low == chunk.length else memoryview(plain)[low:high]

    def arrival(self, place: int, chunk: Chunk) -> Callable[[Future[Plain]], None]:
        """What to do when the chunk at `place` among the parts has come, or never will."""

        def arrived(future: Future[Plain]) -> None:
            error = future.exception()
            with self._lock:
                self._error = self._error or error
                if error is None:
                    self.parts[place] = self.cut(chunk, future.result())
                self.missing -= 1
                last = self.missing == 0
            if last:
                self.finish()

        return arrived

    def finish(self) -> None:
        """Hand over the parts, or the first error."""
        if self._error:
            self._finished((), self._error)
        else:
            self._finished([*self.parts, bytes(self._padding)], None)
