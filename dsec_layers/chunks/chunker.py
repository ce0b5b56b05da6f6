"""Where chunks begin and end on the device. Pure: contents go in, lists of pieces come out.

Contents are given in device order. Small ones are grouped; a group ends after a content whose own
digest says so, with a probability proportional to its padded size. So the same run of files gives
the same chunks in every build, and an inserted, changed or removed file alters the chunks around it
only. Large ones are cut by FastCDC on their own, begin a chunk and end one.

What is remembered of an earlier layer (`Remembered`) needs no bytes: a group of contents whose
digests are known is passed on without them, and so is a large content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import pyfastcdc

from dsec_layers.chunks import constants as c
from dsec_layers.chunks.device import padded
from dsec_layers.chunks.memory import group_key
from dsec_layers.model.tree import BLOCK_SIZE

Piece = bytes | memoryview
Emit = Callable[[list[Piece]], None]
Read = Callable[[], bytes]

_ZEROS: Final = bytes(BLOCK_SIZE)
# A content ends its group when the first eight bytes of its digest, as a number, are below padded
# size times this.
_END_RATE: Final = (1 << 64) // (c.GROUP_TARGET_BYTES - c.GROUP_MIN_BYTES)


class Remembered(Protocol):
    """Chunks by the digest of a large content, or by `group_key` of small ones."""

    def take(self, key: bytes) -> bool:
        """Emit the chunks of a key, if they are known."""

    def note(self, key: bytes) -> None:
        """Learn that all chunks emitted since the last call are those of `key`."""


class Chunker:
    """Cuts contents into chunks and hands each to `emit`, as its pieces in order.

    `add` or `add_stream` for each content, then `flush` once.
    """

    def __init__(self, emit: Emit, remembered: Remembered | None = None) -> None:
        self._emit = emit
        self._remembered = remembered
        self._group: list[tuple[bytes, int, Piece | Read]] = []
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
            self._add_cuts(digest, (cut.data for cut in self._cdc.cut_buf(data)))
        elif size:
            self._add_small(digest, data, size)

    def add_later(self, digest: bytes, size: int, read: Read) -> None:
        """Add a content of `size` stored bytes, less than LARGE_FILE_BYTES.

        `read` gives them, and is called by the time of `flush`, or never. What it raises comes out
        of whichever call ends the group.
        """
        self._add_small(digest, read, size)

    def add_remembered(self, digest: bytes) -> bool:
        """Add a content of at least LARGE_FILE_BYTES by its digest; False when it must be read."""
        self.flush()
        if self._remembered is None or not self._remembered.take(digest):
            return False
        self._remembered.note(digest)
        return True

    def add_stream(self, digest: bytes, pieces: Iterable[bytes]) -> None:
        """Add the stored bytes of a content of at least LARGE_FILE_BYTES, piece by piece."""
        cuts = self._cdc.cut_stream(_Stream(pieces))
        self._add_cuts(digest, (bytes(cut.data) for cut in cuts))

    def flush(self) -> None:
        """End the last group."""
        if not self._group:
            return
        group, self._group, self._group_bytes = self._group, [], 0
        if self._remembered is None:
            self._emit(_pieces(group))
            return
        key = group_key(digest for digest, _, _ in group)
        if not self._remembered.take(key):
            self._emit(_pieces(group))
        self._remembered.note(key)

    def _add_small(self, digest: bytes, data: Piece | Read, size: int) -> None:
        space = padded(size)
        if self._group_bytes + space > c.MAX_CHUNK_BYTES:
            self.flush()
        self._group.append((digest, size, data))
        self._group_bytes += space
        if (
            self._group_bytes >= c.GROUP_MIN_BYTES
            and int.from_bytes(digest[:8], "little") < space * _END_RATE
        ):
            self.flush()

    def _add_cuts(self, digest: bytes, cuts: Iterator[Piece]) -> None:
        self.flush()
        total = 0
        held: Piece = b""  # one cut behind, because the last is padded
        for cut in cuts:
            if total:
                self._emit([held])
            held = cut
            total += len(cut)
        self._emit([held, bytes(padded(total) - total)] if padded(total) != total else [held])
        if self._remembered is not None:
            self._remembered.note(digest)


def _pieces(group: list[tuple[bytes, int, Piece | Read]]) -> list[Piece]:
    pieces: list[Piece] = []
    for _, size, data in group:
        pieces.append(data() if callable(data) else data)
        if size % BLOCK_SIZE:
            pieces.append(_ZEROS[size % BLOCK_SIZE :])
    return pieces


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
