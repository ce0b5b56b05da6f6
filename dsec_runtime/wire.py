"""Frames in which the streams of commands travel between the edge and the SDK.

A frame is a header of 16 bytes and a payload: the kind (u8), three zero bytes, the length of the
payload (u32) and an offset (u64), little-endian. In the body of an answer frames stand one after
another; a binary message of a WebSocket holds one or more. docs/edge.md lists them.

To the client: STDOUT and STDERR carry output and where it begins in its stream: an offset beyond
the end of the frame before means that what lies between was not kept. END carries `spec.ExecEnd`
as JSON and is the last, PROBLEM `spec.Problem` instead of it.
From the client: STDIN, CLOSE_STDIN, RESIZE (rows u16, columns u16), SIGNAL (its number as the
offset).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<BxxxIQ")
_SIZE: Final = struct.Struct("<HH")
HEADER_BYTES: Final = _HEADER.size
MAX_PAYLOAD_BYTES: Final = 1 << 24


class Kind(enum.IntEnum):
    """What a frame carries."""

    STDOUT = 1
    STDERR = 2
    END = 3
    PROBLEM = 4
    STDIN = 5
    CLOSE_STDIN = 6
    RESIZE = 7
    SIGNAL = 8


class Frame(NamedTuple):
    """One frame; `payload` may be a view into a larger buffer."""

    kind: int
    offset: int
    payload: memoryview


class MalformedError(ValueError):
    """What came is no frame."""


def frame(kind: Kind, payload: bytes | bytearray | memoryview = b"", offset: int = 0) -> bytes:
    """The bytes of one frame."""
    return b"".join((head(kind, len(payload), offset), payload))


def head(kind: Kind, length: int, offset: int) -> bytes:
    """What goes before a payload of so many bytes."""
    return _HEADER.pack(kind, length, offset)


def parse(message: bytes | bytearray | memoryview) -> Frame:
    """The frame that is all of `message`. Raises MalformedError."""
    if len(message) < HEADER_BYTES:
        raise MalformedError("a frame has at least 16 bytes")
    kind, length, offset = _HEADER.unpack_from(message)
    if length != len(message) - HEADER_BYTES:
        raise MalformedError("the length of a frame is not that of its message")
    return Frame(kind, offset, memoryview(message)[HEADER_BYTES:])


def size_payload(rows: int, columns: int) -> bytes:
    """The payload of RESIZE."""
    return _SIZE.pack(rows, columns)


def parse_size(payload: bytes | memoryview) -> tuple[int, int]:
    """Rows and columns. Raises MalformedError."""
    if len(payload) != _SIZE.size:
        raise MalformedError("a size has four bytes")
    rows, columns = _SIZE.unpack(payload)
    return rows, columns


class Parser:
    """Frames out of a stream that comes in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now. Raises MalformedError; then the stream is of no use."""
        source: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            source = self._buffer
        at = 0
        view = memoryview(source)
        while len(view) - at >= HEADER_BYTES:
            kind, length, offset = _HEADER.unpack_from(view, at)
            if length > MAX_PAYLOAD_BYTES:
                raise MalformedError(f"a frame of {length} bytes")
            end = at + HEADER_BYTES + length
            if end > len(view):
                break
            yield Frame(kind, offset, view[at + HEADER_BYTES : end])
            at = end
        if at or source is data:
            self._buffer = bytearray(view[at:])

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a frame is left over."""
        return not self._buffer
