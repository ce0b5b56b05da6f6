"""Plain bytes from a stream that may be compressed, as its first bytes tell; in bounded memory."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Final, Protocol

import zstandard

from dsec_layers.errors import CorruptError

_PIECE: Final = 1 << 18
# One call decompresses all of its input. The densest zstd data turns four bytes into 128 KiB.
_INPUT_PIECE: Final = 4096
_ZSTD_WINDOW: Final = 1 << 31  # what `zstd --ultra --long=31` may ask for
_FAILURES: Final = (zlib.error, zstandard.ZstdError, lzma.LZMAError, EOFError, OSError)


class Readable(Protocol):
    """Anything with a `read` that gives at most `size` bytes, and none only at the end."""

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        ...


class _Decompressor(Protocol):
    """What zlib and zstandard have in common: one frame at a time."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def plain(stream: Readable, *, name: str) -> io.BufferedReader:
    """The bytes of `stream`, decompressed when they start like gzip, zstd, xz or bzip2 data.

    Reading raises CorruptError, naming the stream by `name`, for data that is damaged or cut short.
    """
    head = b""
    while len(head) < 6 and (piece := stream.read(6 - len(head))):
        head += piece
    whole = _Whole(head, stream)
    for magic, decompress in _FORMATS:
        if head.startswith(magic):
            return io.BufferedReader(_Checked(decompress(whole), name), _PIECE)
    return io.BufferedReader(_Checked(whole, name, failures=()), _PIECE)


def is_compressed(head: bytes) -> bool:
    """Whether a stream that starts with these (six) bytes is one that `plain` decompresses."""
    return any(head.startswith(magic) for magic, _ in _FORMATS)


class _Whole(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: Readable) -> None:
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._stream.read(size)
        piece, self._head = self._head[:size], self._head[size:]
        return piece

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class _Checked(io.RawIOBase):
    """A raw stream over a decompressor, whose errors become CorruptError."""

    def __init__(
        self, source: Readable, name: str, failures: tuple[type[Exception], ...] = _FAILURES
    ) -> None:
        self._source = source
        self._name = name
        self._failures = failures

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._source.read(len(buffer))
        except self._failures as error:
            raise CorruptError(f"{self._name}: the compressed data is damaged: {error}") from error
        buffer[: len(piece)] = piece
        return len(piece)


class _Frames:
    """Frames (gzip calls them members) one after another, zero padding allowed between them."""

    def __init__(self, source: Readable, new: Callable[[], _Decompressor]) -> None:
        self._source = source
        self._new = new
        self._frame: _Decompressor | None = None
        self._input = b""
        self._output = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        while not self._output:
            self._input = self._input or self._source.read(_INPUT_PIECE)
            if self._frame is None:
                self._input = self._input.lstrip(b"\0") or self._skip_padding()
                if not self._input:
                    return b""
                self._frame = self._new()
            if not self._input:
                raise EOFError("it ends too early")
            self._output = memoryview(self._frame.decompress(self._input))
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
        piece, self._output = self._output[:size], self._output[size:]
        return bytes(piece)

    def _skip_padding(self) -> bytes:
        while piece := self._source.read(_INPUT_PIECE):
            if piece := piece.lstrip(b"\0"):
                return piece
        return b""


def _gzip(source: _Whole) -> Readable:
    return _Frames(source, lambda: zlib.decompressobj(wbits=31))


def _zstd(source: _Whole) -> Readable:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return _Frames(source, decompressor.decompressobj)


def _xz(source: _Whole) -> Readable:
    return lzma.LZMAFile(io.BufferedReader(source, _PIECE))


def _bzip2(source: _Whole) -> Readable:
    return bz2.BZ2File(io.BufferedReader(source, _PIECE))


_FORMATS: Final[tuple[tuple[bytes, Callable[[_Whole], Readable]], ...]] = (
    (b"\x1f\x8b", _gzip),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"\x50\x2a\x4d\x18", _zstd),  # a skippable frame, which parallel compressors put first
    (b"\xfd7zXZ\0", _xz),
    (b"BZh", _bzip2),
)
