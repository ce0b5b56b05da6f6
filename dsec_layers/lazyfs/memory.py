"""A small LRU of checked plain chunks in memory, for reads that take a chunk in several pieces."""

from __future__ import annotations

import threading
from collections import OrderedDict


class MemoryChunks:
    """At most `limit_bytes` of chunks by digest. Safe for many threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._chunks: OrderedDict[bytes, bytes | memoryview] = OrderedDict()
        self._bytes = 0

    @property
    def held_bytes(self) -> int:
        """What it holds now."""
        return self._bytes

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._chunks

    def get(self, digest: bytes) -> bytes | memoryview | None:
        """The chunk, now the most recently used one."""
        with self._lock:
            chunk = self._chunks.get(digest)
            if chunk is not None:
                self._chunks.move_to_end(digest)
            return chunk

    def put(self, digest: bytes, chunk: bytes | memoryview) -> None:
        """Keep a chunk whose bytes were checked, at the expense of the least recently used."""
        with self._lock:
            if digest in self._chunks:
                return
            self._chunks[digest] = chunk
            self._bytes += len(chunk)
            while self._bytes > self.limit_bytes:
                self._bytes -= len(self._chunks.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._chunks.clear()
            self._bytes = 0
