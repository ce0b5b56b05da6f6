"""Chunks on their way from chunker to packs: hashed and compressed by threads, kept in order.

The libraries release the interpreter lock while they work on a chunk, so threads use all cores. The
caller hands out batches of chunks until IN_FLIGHT_BYTES wait, and works on what is beyond that
itself. So no more threads run than there are cores, none idles, and when the caller has read all
contents there is work left for the others while it does something else. What comes out does not
depend on the number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from dsec_layers.chunks.chunker import Piece
from dsec_layers.chunks.constants import MIB
from dsec_layers.chunks.frame import chunk_digest, encode_chunk
from dsec_layers.chunks.frames import StoredFrames
from dsec_layers.chunks.memory import Cut
from dsec_layers.chunks.packs import PackSet

BATCH_BYTES: Final = MIB
IN_FLIGHT_BYTES: Final = 64 * MIB

_Batch = list[Sequence[Piece] | Cut]
_Stored = tuple[bytes, int, bytes | None]  # digest, plain length, stored form


class ChunkPipeline:
    """`emit` chunks in device order, then `drain`. A context manager that waits for its threads."""

    def __init__(
        self, packs: PackSet, workers: int | None = None, frames: StoredFrames | None = None
    ) -> None:
        """`workers` is the number of threads, by default one for each core this process may use.

        The calling thread is one of them, but there is always another. What `frames` has is not
        compressed again, and `packs` has to find it there.
        """
        workers = workers or len(os.sched_getaffinity(0))
        self._packs = packs
        self._frames = frames
        self._pool = ThreadPoolExecutor(max(1, workers - 1), "chunks")
        self.count = 0  # chunks taken
        self._batch: _Batch = []
        self._batch_bytes = 0
        self._waiting: deque[tuple[int, Future[list[_Stored]]]] = deque()
        self._waiting_bytes = 0

    def __enter__(self) -> ChunkPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def emit(self, pieces: Sequence[Piece]) -> None:
        """Take the next chunk. Raises what a thread raised."""
        self._take(pieces, sum(map(len, pieces)))

    def has(self, digest: bytes) -> bool:
        """Whether a chunk may be given to `refer`, without its bytes."""
        return not self._packs.needs(digest) or (
            self._frames is not None and self._frames.has(digest)
        )

    def refer(self, cut: Cut) -> None:
        """Take the next chunk, which `has` knows. Raises as `emit`."""
        self._take(cut, cut.length)

    def drain(self) -> None:
        """Wait until every chunk has reached the packs."""
        self._pass_on()
        while self._waiting:
            self._deliver()

    def _take(self, chunk: Sequence[Piece] | Cut, size: int) -> None:
        self.count += 1
        self._batch.append(chunk)
        self._batch_bytes += size
        if self._batch_bytes >= BATCH_BYTES:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the batch to the threads, or work on it here when they have enough."""
        batch, size = self._batch, self._batch_bytes
        self._batch, self._batch_bytes = [], 0
        while self._waiting and self._may_deliver():
            self._deliver()
        if self._waiting_bytes + size <= IN_FLIGHT_BYTES:
            future = self._pool.submit(self._pack, batch)
        else:
            future = Future()
            future.set_result(self._pack(batch))
            size = sum(len(stored or b"") for _, _, stored in future.result())
        self._waiting.append((size, future))
        self._waiting_bytes += size

    def _may_deliver(self) -> bool:
        """The oldest batch is done; or a thread stands still, and too much waits behind it."""
        return self._waiting[0][1].done() or self._waiting_bytes > 2 * IN_FLIGHT_BYTES

    def _deliver(self) -> None:
        size, future = self._waiting.popleft()
        self._waiting_bytes -= size
        for stored in future.result():
            self._packs.add(*stored)

    def _pack(self, batch: _Batch) -> list[_Stored]:
        return [
            (*chunk, None) if isinstance(chunk, Cut) else self._pack_chunk(chunk) for chunk in batch
        ]

    def _pack_chunk(self, pieces: Sequence[Piece]) -> _Stored:
        plain = b"".join(pieces)
        digest = chunk_digest(plain)
        return digest, len(plain), None if self.has(digest) else encode_chunk(plain)
