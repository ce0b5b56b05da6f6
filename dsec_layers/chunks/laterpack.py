"""A pack written by another thread, while the next chunks are found.

Reading stored chunks, hashing and writing them take as long as all else that is done for a layer of
which little has changed, and the interpreter is not needed for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dsec_layers.chunks.constants import MIB
from dsec_layers.chunks.pack import HEADER_BYTES, PackWriter, is_full
from dsec_layers.model.manifest import Descriptor

Get = Callable[[], bytes]

_BATCH_BYTES: Final = MIB
_IN_FLIGHT_BYTES: Final = 64 * MIB
_Chunk = tuple[bytes, int, Get]  # digest, plain length, what gives its stored form


class LaterPack:
    """Writes one pack to the new file `path`. `full` is as of a `PackWriter`.

    `append` until it is full, then `end`, then `finish`. What the thread raises comes out of any.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.full = False
        self._size = HEADER_BYTES
        self._writer = PackWriter(path)
        self._pool = ThreadPoolExecutor(1, "pack")
        self._batch: list[_Chunk] = []
        self._batch_bytes = 0
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._waiting_bytes = 0

    def append(self, digest: bytes, length: int, size: int, get: Get) -> int:
        """Add a chunk of `length` plain bytes whose stored form has `size`; returns its offset.

        `get` gives the stored form, in the other thread.
        """
        offset = self._size
        self._size += size
        self.full = is_full(self._size, digest, size)
        self._batch.append((digest, length, get))
        self._batch_bytes += size
        if self._batch_bytes >= _BATCH_BYTES:
            self._pass_on()
        return offset

    def end(self) -> None:
        """No chunk follows."""
        self._pass_on()

    def finish(self) -> Descriptor:
        """Wait until all is written; returns the descriptor of the pack."""
        for _, future in self._waiting:
            future.result()
        self._pool.shutdown()
        return self._writer.finish()

    def abandon(self) -> None:
        """Stop, and remove the file."""
        self._pool.shutdown(cancel_futures=True)
        self._writer.abandon()

    def _pass_on(self) -> None:
        batch, size = self._batch, self._batch_bytes
        self._batch, self._batch_bytes = [], 0
        self._waiting.append((size, self._pool.submit(self._write, batch)))
        self._waiting_bytes += size
        while self._waiting[0][1].done() or self._waiting_bytes > _IN_FLIGHT_BYTES:
            size, future = self._waiting.popleft()
            self._waiting_bytes -= size
            future.result()
            if not self._waiting:
                break

    def _write(self, batch: list[_Chunk]) -> None:
        for digest, length, get in batch:
            self._writer.append(digest, length, get())
