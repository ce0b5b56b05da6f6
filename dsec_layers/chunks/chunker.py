"""Where chunks begin and end on the device. Pure: contents go in, lists of pieces come out.

Contents are given in device order. Small ones are grouped; a group ends after a content whose own
digest says so, with a probability proportional to its padded size. So the same run of files gives
the same chunks in every build, and an inserted, changed or removed file alters the chunks around it
only. Large ones are cut by FastCDC on their own, begin a chunk and end one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyfastcdc

from dsec_layers.chunks import constants as c
from dsec_layers.chunks.device import padded
from dsec_layers.model.tree import BLOCK_SIZE

Piece = bytes | memoryview
Emit = Callable[[list[Piece]], None]

_ZEROS: Final = bytes(BLOCK_SIZE)
# A content ends its group when the first eight bytes of its digest, as a number, are below padded
# size times this.
_END_RATE: Final = (1 << 64) // (c.GROUP_TARGET_BYTES - c.GROUP_MIN_BYTES)


class Chunker:
    """Cuts contents into chunks and hands each to `emit`, as its pieces in order.

    `add` or `add_stream` for each content, then `flush` once.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._group: list[Piece] = []
        self._group_bytes = 0
        self._cdc = pyfastcdc.FastCDC(
            c.CDC_AVERAGE_BYTES,
            min_size=c.CDC_MIN_BYTES,
            max_size=c.CDC_MAX_BYTES,
            normalized_chunking=c.CDC_NORMALISATION,
        )

    def add(self, digest: bytes, data: Piece) -> None:
        """Add a content held in memory: its data runs, joined. An empty one takes no space."""
        size = len(data)
        if size >= c.LARGE_FILE_BYTES:
            self._add_cuts(cut.data for cut in self._cdc.cut_buf(data))
        elif size:
            self._add_small(digest, data, size)

    def add_stream(self, pieces: Iterable[bytes]) -> None:
        """Add the stored bytes of a content of at least LARGE_FILE_BYTES, piece by piece."""
        self._add_cuts(bytes(cut.data) for cut in self._cdc.cut_stream(_Stream(pieces)))

    def flush(self) -> None:
        """End the last group."""
        if self._group:
            self._emit(self._group)
            self._group = []
            self._group_bytes = 0

    def _add_small(self, digest: bytes, data: Piece, size: int) -> None:
        space = padded(size)
        if self._group_bytes + space > c.MAX_CHUNK_BYTES:
            self.flush()
        self._group.append(data)
        if space != size:
            self._group.append(_ZEROS[: space - size])
        self._group_bytes += space
        if (
            self._group_bytes >= c.GROUP_MIN_BYTES
            and int.from_bytes(digest[:8], "little") < space * _END_RATE
        ):
            self.flush()

    def _add_cuts(self, cuts: Iterator[Piece]) -> None:
        self.flush()
        total = 0
        held: Piece = b""  # one cut behind, because the last is padded
        for cut in cuts:
            if total:
                self._emit([held])
            held = cut
            total += len(cut)
        self._emit([held, bytes(padded(total) - total)] if padded(total) != total else [held])


class _Stream:
    """The reader that FastCDC wants, over an iterator of pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readinto(self, buffer: memoryview) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
