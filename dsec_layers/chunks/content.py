"""Reading file contents: the bytes, the runs that are data rather than holes, the digest.

A content of up to READ_WHOLE_BYTES is read once, into memory. A larger one is scanned first and
streamed later, both with plain reads: a mapping of a file that somebody truncates would kill the
process. A content whose length or times differ from what they were raises CorruptError with its
path.
"""

from __future__ import annotations

import bisect
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import blake3

from dsec_layers.chunks.constants import MIB
from dsec_layers.errors import CorruptError
from dsec_layers.linux import cancelling
from dsec_layers.model.content import Content, LocalFile, Spooled
from dsec_layers.model.tree import BLOCK_SIZE, sparse_content_hasher

READ_WHOLE_BYTES: Final = 8 * MIB
PIECE_BYTES: Final = MIB

Run = tuple[int, int]  # offset and length in the content, bytes

_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ZEROS: Final = bytes(BLOCK_SIZE)


class Scan(NamedTuple):
    """What packing must know of a content: its 32-byte digest and its maximal data runs.

    `dense` says that no block is all zeros: there is one run, the whole, or none when it is empty.
    """

    digest: bytes
    runs: tuple[Run, ...]
    dense: bool


def data_runs(data: bytes) -> tuple[Run, ...]:
    """The maximal runs of 4 KiB blocks that are not all zeros; the last block may be short."""
    size = len(data)
    heads = data[::BLOCK_SIZE]  # a zero block begins with a zero byte, few others do
    block = heads.find(0)
    if block < 0:
        return ((0, size),) if size else ()
    runs: list[Run] = []
    start = 0
    while block >= 0:
        offset = block * BLOCK_SIZE
        piece = data[offset : offset + BLOCK_SIZE]
        if piece == _ZEROS[: len(piece)]:
            if offset > start:
                runs.append((start, offset - start))
            start = offset + BLOCK_SIZE
        block = heads.find(0, block + 1)
    if start < size:
        runs.append((start, size - start))
    return tuple(runs)


def scan_bytes(data: bytes) -> Scan:
    """The scan of a content held in memory."""
    size = len(data)
    runs = data_runs(data)
    if runs == ((0, size),) or not size:
        return Scan(blake3.blake3(data).digest(), runs, True)
    hasher = sparse_content_hasher(size, runs)
    for offset, length in runs:
        hasher.update(data[offset : offset + length])
    return Scan(hasher.digest(), runs, False)


def read_whole(content: Content, size: int) -> bytes:
    """The `size` bytes of `content`. Raises CorruptError when its length differs, and OSError."""
    if isinstance(content, Spooled):
        with ContentReader(content, size) as reader:
            return b"".join(reader.stream(((0, size),)))
    fd = os.open(content.path, _OPEN_FLAGS)
    try:
        data = os.read(fd, size + 1)
        while len(data) < size:  # a signal or a network file system may cut a read short
            more = os.read(fd, size + 1 - len(data))
            if not more:
                break
            data += more
    finally:
        os.close(fd)
    if len(data) != size:
        raise changed(content)
    return data


def hash_content(content: Content, size: int) -> bytes:
    """The content digest, in bounded memory. Raises CorruptError when the length differs."""
    cancelling.check()
    if size <= READ_WHOLE_BYTES:
        return scan_bytes(read_whole(content, size)).digest
    with ContentReader(content, size) as reader:
        return reader.scan().digest


def changed(content: Content) -> CorruptError:
    """The error for a content that is no longer what it was when its tree was read."""
    return CorruptError(
        f"{os.fsdecode(content.path)} changed while it was being packed",
        hint="stop what writes to the tree, or pack a copy of it",
    )


class ContentReader:
    """An open content, for one scan and one pass over its data; a context manager."""

    def __init__(self, content: Content, size: int) -> None:
        self._content = content
        self._size = size
        self._fd = os.open(content.path, _OPEN_FLAGS)
        self._before = _state(self._fd)

    def __enter__(self) -> ContentReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def scan(self) -> Scan:
        """Find the data runs and the digest; a content with zero blocks is read twice.

        Raises CorruptError when the content has another length or changes meanwhile.
        """
        if isinstance(self._content, LocalFile) and self._before[0] != self._size:
            raise changed(self._content)
        runs: list[Run] = []
        whole = blake3.blake3()
        for offset, piece in self._pieces(self._regions()):
            for start, length in data_runs(piece):
                _append(runs, offset + start, length)
            if runs == [(0, offset + len(piece))]:
                whole.update(piece)
        if runs == [(0, self._size)] or not self._size:
            return Scan(whole.digest(), tuple(runs), True)
        hasher = sparse_content_hasher(self._size, runs)
        for piece in self.stream(runs):
            hasher.update(piece)
        return Scan(hasher.digest(), tuple(runs), False)

    def stream(self, runs: Iterable[Run]) -> Iterator[bytes]:
        """The bytes of `runs`, one run after the other, in pieces of at most 1 MiB.

        Raises CorruptError, after the last piece at the latest, when the content has changed since
        it was opened.
        """
        for _, piece in self._pieces(runs):
            yield piece
        if _state(self._fd) != self._before:
            raise changed(self._content)

    def _pieces(self, runs: Iterable[Run]) -> Iterator[tuple[int, bytes]]:
        for start, length in runs:
            for offset in range(start, start + length, PIECE_BYTES):
                cancelling.check()
                yield offset, self._read(offset, min(PIECE_BYTES, start + length - offset))

    def _regions(self) -> Iterator[Run]:
        """Where data may be: the stored parts, widened to whole blocks, clipped to the size."""
        regions: list[Run] = []
        for start, length in self._stored():
            first = start // BLOCK_SIZE * BLOCK_SIZE
            end = min(-(-(start + length) // BLOCK_SIZE) * BLOCK_SIZE, self._size)
            if regions:
                first = max(first, sum(regions[-1]))
            if end > first:
                _append(regions, first, end - first)
        return iter(regions)

    def _stored(self) -> Iterator[Run]:
        if isinstance(self._content, Spooled):
            yield from ((offset, length) for offset, length, _ in self._content.runs)
            return
        offset = 0
        while offset < self._size:
            try:
                start = os.lseek(self._fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # ENXIO: only a hole is left
                    raise
                return
            offset = os.lseek(self._fd, start, os.SEEK_HOLE)
            yield start, offset - start

    def _read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes of the content; what is not stored reads as zeros."""
        if isinstance(self._content, LocalFile):
            return self._read_file(offset, length)
        runs, end = self._content.runs, offset + length
        pieces: list[bytes] = []
        index = max(0, bisect.bisect_right(runs, offset, key=lambda run: run[0]) - 1)
        position = offset
        while position < end and index < len(runs):
            start, count, place = runs[index]
            begin, stop = max(start, position), min(start + count, end)
            if begin < stop:
                pieces += (
                    bytes(begin - position),
                    self._read_file(place + begin - start, stop - begin),
                )
                position = stop
            elif start >= end:
                break
            index += 1
        return b"".join(pieces) + bytes(end - position)

    def _read_file(self, place: int, length: int) -> bytes:
        data = os.pread(self._fd, length, place)
        while len(data) < length:  # a signal or a network file system may cut a read short
            more = os.pread(self._fd, length - len(data), place + len(data))
            if not more:
                raise changed(self._content)
            data += more
        return data


def _state(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _append(runs: list[Run], start: int, length: int) -> None:
    if runs and sum(runs[-1]) == start:
        runs[-1] = (runs[-1][0], runs[-1][1] + length)
    else:
        runs.append((start, length))
