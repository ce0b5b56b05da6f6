"""Frames and their fields, as bytes: docs/formats/guest-protocol.md. Does no I/O."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

VERSION: Final = 1
MAX_PAYLOAD: Final = 1 << 20
MAX_DATA: Final = 64 << 10  # bytes in one data frame that the host sends
STDIN_WINDOW: Final = 256 << 10
WINDOW: Final = 1 << 20  # how far a sender of file data may be ahead

_HEADER: Final = struct.Struct("<BBHII")
_FIELD: Final = struct.Struct("<HI")
_NUMBER: Final = struct.Struct("<Q")
_TRAILER: Final = b"\xa5"


class Type(enum.IntEnum):
    """What a frame is."""

    NOTHING = 0
    HELLO = 1
    PING = 2
    PONG = 3
    EXEC = 0x10
    ATTACH = 0x11
    PROCESSES = 0x12
    FORGET = 0x13
    KILL = 0x14
    READ = 0x20
    WRITE = 0x21
    STAT = 0x22
    LIST = 0x23
    MKDIR = 0x24
    MOVE = 0x25
    REMOVE = 0x26
    CHANGE = 0x27
    TREE_READ = 0x28
    TREE_WRITE = 0x29
    WATCH = 0x2A
    LINK = 0x2B
    DIAL = 0x30
    CLOCK = 0x40
    RESEED = 0x41
    DATA = 0x50
    ACK = 0x51
    EOF = 0x52
    SIGNAL = 0x53
    RESIZE = 0x54
    CLOSE = 0x55
    REPLY = 0x60
    ERROR = 0x61
    END = 0x62
    CLOSED = 0x63


class Tag(enum.IntEnum):
    """What a field is."""

    NONCE = 1
    VERSION = 2
    INSTANCE = 3
    FEATURES = 4
    ID = 5
    ARG = 6
    ENV = 7
    CWD = 8
    USER = 9
    FLAGS = 10
    ROWS = 11
    COLUMNS = 12
    TIMEOUT_MS = 13
    LIMIT = 14
    KEEP = 15
    HOLD_MS = 16
    STDIN_OFFSET = 17
    STDOUT_OFFSET = 18
    STDERR_OFFSET = 19
    PID = 20
    CAUSE = 21
    STATUS = 22
    SIGNAL = 23
    WALL_US = 24
    CPU_US = 25
    PEAK = 26
    ERRNO = 27
    STAGE = 28
    RUNNING = 30
    PATH = 31
    TARGET = 32
    MODE = 33
    UID = 34
    GID = 35
    SIZE = 36
    MTIME_NS = 37
    OFFSET = 38
    PORT = 39
    TIME_NS = 40
    BYTES = 41
    EVENT = 43
    LENGTH = 45


class Frame(NamedTuple):
    """A frame; `type` and `flags` are what was sent, whether this version knows them or not.

    Of data and acknowledgements `offset` has the first 8 bytes, `payload` those that follow.
    """

    type: int
    flags: int
    channel: int
    payload: bytes
    offset: int = 0


class MalformedError(ValueError):
    """The peer sent what no frame begins or ends with; nothing after it can be understood."""


Value = bytes | str | int
Fields = dict[int, bytes]


def encode(kind: int, channel: int = 0, payload: bytes = b"", *, flags: int = 0) -> bytes:
    """The bytes of a frame. Raises ValueError when the payload is longer than MAX_PAYLOAD."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"{len(payload)} bytes do not fit in a frame (at most {MAX_PAYLOAD})")
    return _HEADER.pack(kind, flags, 0, channel, len(payload)) + payload + _TRAILER


def encode_data(channel: int, offset: int, data: bytes | memoryview, *, flags: int = 0) -> bytes:
    """A data frame: bytes of a stream from an offset."""
    length = 8 + len(data)
    head = _HEADER.pack(Type.DATA, flags, 0, channel, length) + _NUMBER.pack(offset)
    return b"".join((head, data, _TRAILER))


def encode_offset(offset: int) -> bytes:
    """The payload of an acknowledgement."""
    return _NUMBER.pack(offset)


def encode_fields(fields: Iterable[tuple[int, Value]]) -> bytes:
    """Fields in their order; numbers are 8 bytes, text is UTF-8 (or the bytes that a path has)."""
    parts = []
    for tag, value in fields:
        if isinstance(value, int):
            value = _NUMBER.pack(value)
        elif isinstance(value, str):
            value = value.encode(errors="surrogateescape")
        parts.append(_FIELD.pack(tag, len(value)) + value)
    return b"".join(parts)


def each_field(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and value of each field, in order. Raises MalformedError."""
    at = 0
    while at < len(payload):
        if len(payload) - at < _FIELD.size:
            raise MalformedError("a field ends within its head")
        tag, length = _FIELD.unpack_from(payload, at)
        at += _FIELD.size
        if length > len(payload) - at:
            raise MalformedError("a field is longer than its frame")
        yield tag, payload[at : at + length]
        at += length


def fields_of(payload: bytes) -> Fields:
    """Fields by tag, the last of each. Raises MalformedError."""
    return dict(each_field(payload))


def number(fields: Fields, tag: int, default: int = 0) -> int:
    """The number of a field. Raises MalformedError when it is none."""
    value = fields.get(tag)
    if value is None:
        return default
    if len(value) != _NUMBER.size:
        raise MalformedError(f"field {tag} is no number")
    found: int = _NUMBER.unpack(value)[0]
    return found


def text(fields: Fields, tag: int, default: str = "") -> str:
    """The text of a field."""
    value = fields.get(tag)
    return default if value is None else value.decode(errors="surrogateescape")


class Decoder:
    """Frames from a stream that arrives in pieces of any size.

    Until `await_nonce` has been met everything is skipped: on a stream that outlives its hosts the
    first bytes may be the rest of a frame to the one before.
    """

    def __init__(self, await_nonce: bytes = b"") -> None:
        self._nonce = await_nonce
        self._part = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """The frames that are whole now. Raises MalformedError."""
        if self._part or self._nonce:
            self._part += data
            if self._nonce and not self._synchronise():
                return []
            with memoryview(self._part) as whole:
                frames, used = _parse(whole)
            del self._part[:used]
            return frames
        with memoryview(data) as view:
            frames, used = _parse(view)
            self._part += view[used:]
        return frames

    def _synchronise(self) -> bool:
        """Drop what is before the greeting that holds the nonce."""
        field = encode_fields([(Tag.NONCE, self._nonce)])
        at = self._part.find(field)
        if at < _HEADER.size:
            del self._part[: max(0, len(self._part) - len(field) - _HEADER.size)]
            return False
        del self._part[: at - _HEADER.size]
        self._nonce = b""
        return True


def _parse(view: memoryview) -> tuple[list[Frame], int]:
    frames: list[Frame] = []
    at, size = 0, len(view)
    while at < size:
        if view[at] == Type.NOTHING:
            at += 1
            continue
        if size - at < _HEADER.size:
            break
        kind, flags, zero, channel, length = _HEADER.unpack_from(view, at)
        if zero or length > MAX_PAYLOAD:
            raise MalformedError("this is no frame's head")
        end = at + _HEADER.size + length
        if size <= end:
            break
        if view[end] != _TRAILER[0]:
            raise MalformedError("a frame does not end where its length says")
        frames.append(_frame(kind, flags, channel, view[at + _HEADER.size : end]))
        at = end + 1
    return frames, at


def _frame(kind: int, flags: int, channel: int, payload: memoryview) -> Frame:
    if kind not in (Type.DATA, Type.ACK):
        return Frame(kind, flags, channel, bytes(payload))
    if len(payload) < _NUMBER.size:
        raise MalformedError("an offset has 8 bytes")
    # Cut here and not by each reader, so that data is copied once.
    return Frame(kind, flags, channel, bytes(payload[8:]), _NUMBER.unpack_from(payload)[0])
