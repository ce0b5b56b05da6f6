"""Compression of a stream in several threads, with the same bytes however many they are.

Formats: RFC 1951 and 1952 (deflate, gzip), RFC 8878 (zstd).
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol

import zstandard

BLOCK_BYTES: Final = 1 << 20
_WINDOW_BYTES: Final = 1 << 15
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
# No name, no time, no word on the system (255).
_GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_GZIP_TAIL: Final = struct.Struct("<II")

Write = Callable[[bytes], object]


class Compression(StrEnum):
    """How the layers of an image are compressed."""

    GZIP = "gzip"
    ZSTD = "zstd"
    NONE = "none"


class Compressor(Protocol):
    """Takes a stream in pieces of any length; a context manager that ends its threads."""

    def write(self, data: bytes) -> None:
        """The next bytes."""
        ...

    def finish(self) -> None:
        """The end."""
        ...

    def __enter__(self) -> Compressor: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def compressor(compression: Compression, write: Write, workers: int) -> Compressor:
    """A compressor that hands what it makes to `write`, in the caller's thread."""
    match compression:
        case Compression.GZIP:
            return _Blocks(_Gzip(write, workers))
        case Compression.ZSTD:
            return _Blocks(_Zstd(write, workers))
        case Compression.NONE:
            return _Blocks(_Plain(write))


class _Stage(Protocol):
    """Takes blocks of BLOCK_BYTES; the last is shorter, and may be empty."""

    def block(self, data: bytes) -> None: ...
    def last(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class _Blocks:
    """Cuts the stream into blocks of one size, so that its pieces leave no trace."""

    def __init__(self, stage: _Stage) -> None:
        self._stage = stage
        self._pending = bytearray()

    def write(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= BLOCK_BYTES:
            self._stage.block(bytes(self._pending[:BLOCK_BYTES]))
            del self._pending[:BLOCK_BYTES]

    def finish(self) -> None:
        self._stage.last(bytes(self._pending))

    def __enter__(self) -> _Blocks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stage.close()


class _Plain:
    def __init__(self, write: Write) -> None:
        self._write = write

    def block(self, data: bytes) -> None:
        self._write(data)

    def last(self, data: bytes) -> None:
        self._write(data)

    def close(self) -> None:
        pass


class _Zstd:
    """One frame. With threads of its own, zstd cuts its work by size, not by their number."""

    def __init__(self, write: Write, workers: int) -> None:
        self._write = write
        self._frame = zstandard.ZstdCompressor(
            level=_ZSTD_LEVEL, threads=workers, write_checksum=True
        ).compressobj()

    def block(self, data: bytes) -> None:
        self._write(self._frame.compress(data))

    def last(self, data: bytes) -> None:
        self._write(self._frame.compress(data) + self._frame.flush())

    def close(self) -> None:
        pass


class _Gzip:
    """One member. Each block is deflated alone, with the end of the one before as dictionary."""

    def __init__(self, write: Write, workers: int) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(workers)
        self._running: deque[Future[bytes]] = deque()
        self._most = 2 * workers
        self._window = b""
        self._checksum = 0
        self._size = 0
        write(_GZIP_HEAD)

    def block(self, data: bytes) -> None:
        self._start(data, zlib.Z_SYNC_FLUSH)

    def last(self, data: bytes) -> None:
        self._start(data, zlib.Z_FINISH)
        while self._running:
            self._write(self._running.popleft().result())
        self._write(_GZIP_TAIL.pack(self._checksum, self._size & 0xFFFFFFFF))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _start(self, data: bytes, end: int) -> None:
        self._checksum = zlib.crc32(data, self._checksum)
        self._size += len(data)
        self._running.append(self._pool.submit(_deflated, data, self._window, end))
        self._window = data[-_WINDOW_BYTES:]
        if len(self._running) > self._most:
            self._write(self._running.popleft().result())


def _deflated(data: bytes, window: bytes, end: int) -> bytes:
    deflate = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=window)
    return deflate.compress(data) + deflate.flush(end)
