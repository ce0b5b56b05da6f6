"""The data of files of opened layers, by chunk: where it lies, whether two files are equal, bytes.

Two files are compared by the chunks that hold them, which needs no data. Chunks are cut by what
lies next to each other, so equal files may lie in different chunks; then only reading tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from dsec_layers.api import contents
from dsec_layers.api.opened import OpenedLayer
from dsec_layers.chunks.table import Chunk
from dsec_layers.model.tree import Entry

_KEPT_CHUNKS = 16  # of at most 4 MiB each


class How(StrEnum):
    """What told whether two files are equal."""

    SIZE = "size"
    CHUNKS = "chunks"
    READ = "read"
    UNREAD = "unread"  # nothing did: only reading would


class Verdict(NamedTuple):
    """Whether two files are equal, None when that is not known, and what told it."""

    equal: bool | None
    how: How


class Place(NamedTuple):
    """A file of a layer."""

    opened: OpenedLayer
    entry: Entry


class Piece(NamedTuple):
    """Bytes of a file: `length` of them from `file_offset`, `start` bytes into a chunk."""

    file_offset: int
    length: int
    chunk: Chunk
    start: int


class FileData:
    """Reads chunks through a small cache; what it fetches is checked."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[bytes, bytes] = OrderedDict()

    def compare(self, one: Place, other: Place, *, read: bool) -> Verdict:
        """Whether two files are equal; with `read` their data is read where nothing else tells.

        Raises CorruptError, NotFoundError or StoreError.
        """
        if one.entry.size != other.entry.size:
            return Verdict(False, How.SIZE)
        mine, others = list(pieces(one)), list(pieces(other))
        if list(map(_identity, mine)) == list(map(_identity, others)):
            return Verdict(True, How.CHUNKS)
        if _certainly_differ(mine, others):
            return Verdict(False, How.CHUNKS)
        if not read:
            return Verdict(None, How.UNREAD)
        return Verdict(_equal(self.stream(one), self.stream(other)), How.READ)

    def stream(self, place: Place) -> Iterator[bytes]:
        """The bytes of a file; holes are given as zeros."""
        position = 0
        for piece in pieces(place):
            yield from contents.zeros(piece.file_offset - position)
            yield self.piece(place, piece)
            position = piece.file_offset + piece.length
        yield from contents.zeros(place.entry.size - position)

    def read(self, place: Place, offset: int, length: int) -> bytes:
        """At most `length` bytes of a file from `offset`; fetches no chunk besides those of them.

        Raises CorruptError, NotFoundError or StoreError.
        """
        length = max(0, min(length, place.entry.size - offset))
        found = bytearray(length)
        for piece in pieces(place):
            low = max(offset, piece.file_offset)
            high = min(offset + length, piece.file_offset + piece.length)
            if low < high:
                cut = self._cut(place, piece, low - piece.file_offset, high - low)
                found[low - offset : high - offset] = cut
        return bytes(found)

    def piece(self, place: Place, piece: Piece) -> bytes:
        """The bytes of one of the pieces of a file. Raises as `read`."""
        return self._cut(place, piece, 0, piece.length)

    def _cut(self, place: Place, piece: Piece, start: int, length: int) -> bytes:
        plain = self._chunks.pop(piece.chunk.digest, None)
        if plain is None:
            plain = contents.read_chunk(place.opened.layer, piece.chunk)
        self._chunks[piece.chunk.digest] = plain
        if len(self._chunks) > _KEPT_CHUNKS:
            self._chunks.popitem(last=False)
        return plain[piece.start + start : piece.start + start + length]


def pieces(place: Place) -> Iterator[Piece]:
    """Where the data of a file lies, in order; what is between the pieces are zeros.

    Raises CorruptError, NotFoundError or StoreError.
    """
    opened = place.opened
    for extent in opened.extents(place.entry.path):
        end = extent.device_offset + extent.length
        for index in opened.table.covering(extent.device_offset, extent.length):
            chunk = opened.table[index]
            low, high = max(chunk.device_offset, extent.device_offset), min(chunk.device_end, end)
            file_offset = extent.file_offset + low - extent.device_offset
            yield Piece(file_offset, high - low, chunk, low - chunk.device_offset)


def _identity(piece: Piece) -> tuple[int, int, bytes, int]:
    return piece.file_offset, piece.length, piece.chunk.digest, piece.start


def _certainly_differ(one: list[Piece], other: list[Piece]) -> bool:
    """Whether the same bytes of both files are a whole chunk each, and not the same one."""
    whole = {
        (piece.file_offset, piece.length): piece.chunk.digest
        for piece in one
        if piece.length == piece.chunk.length
    }
    return any(
        whole.get((piece.file_offset, piece.length), piece.chunk.digest) != piece.chunk.digest
        for piece in other
        if piece.length == piece.chunk.length
    )


def _equal(one: Iterator[bytes], other: Iterator[bytes]) -> bool:
    """Whether two streams have the same bytes, however they are cut; stops where they differ."""
    mine = theirs = b""
    while True:
        mine = mine or next(filter(None, one), b"")
        theirs = theirs or next(filter(None, other), b"")
        common = min(len(mine), len(theirs))
        if not common:
            return not mine and not theirs
        if mine[:common] != theirs[:common]:
            return False
        mine, theirs = mine[common:], theirs[common:]
