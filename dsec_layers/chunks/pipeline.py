"""Chunks on their way from chunker to packs: hashed and compressed by threads, kept in order.

The libraries release the interpreter lock while they work on a chunk, so threads use all cores. A
thread takes a batch of chunks at a time, because each hand-over costs the reading thread the lock.
What comes out does not depend on their number. At most IN_FLIGHT_BYTES of plain data wait; a caller
that is faster than the threads is held up.
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
from dsec_layers.chunks.packs import PackSet

BATCH_BYTES: Final = 2 * MIB
IN_FLIGHT_BYTES: Final = 96 * MIB

_Batch = list[Sequence[Piece]]
_Stored = tuple[bytes, int, bytes | None]  # digest, plain length, stored form


class ChunkPipeline:
    """`emit` chunks in device order, then `drain`. A context manager that waits for its threads."""

    def __init__(self, packs: PackSet, workers: int | None = None) -> None:
        """`workers` is the number of threads, by default one for each core this process may use."""
        self._packs = packs
        self._pool = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)), "chunks")
        self._batch: _Batch = []
        self._batch_bytes = 0
        self._waiting: deque[tuple[int, Future[list[_Stored]]]] = deque()
        self._waiting_bytes = 0

    def __enter__(self) -> ChunkPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def emit(self, pieces: Sequence[Piece]) -> None:
        """Take the next chunk; waits while too much is on its way. Raises what a thread raised."""
        self._batch.append(pieces)
        self._batch_bytes += sum(map(len, pieces))
        if self._batch_bytes >= BATCH_BYTES:
            self._submit()

    def drain(self) -> None:
        """Wait until every chunk has reached the packs."""
        self._submit()
        while self._waiting:
            self._deliver()

    def _submit(self) -> None:
        future = self._pool.submit(self._pack, self._batch)
        self._waiting.append((self._batch_bytes, future))
        self._waiting_bytes += self._batch_bytes
        self._batch, self._batch_bytes = [], 0
        while self._waiting_bytes > IN_FLIGHT_BYTES or (
            self._waiting and self._waiting[0][1].done()
        ):
            self._deliver()

    def _deliver(self) -> None:
        length, future = self._waiting.popleft()
        self._waiting_bytes -= length
        for stored in future.result():
            self._packs.add(*stored)

    def _pack(self, batch: _Batch) -> list[_Stored]:
        return [self._pack_chunk(pieces) for pieces in batch]

    def _pack_chunk(self, pieces: Sequence[Piece]) -> _Stored:
        plain = b"".join(pieces)
        digest = chunk_digest(plain)
        return digest, len(plain), encode_chunk(plain) if self._packs.needs(digest) else None
