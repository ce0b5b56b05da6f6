"""Chunks and packs as an earlier layer has stored them: what is in both layers is made once.

A frame depends on the plain bytes and on the encoder (`frame.ENCODER`) alone, and a pack on its
frames, so a layer is the same whether they are made or found.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from dsec_layers.chunks.pack import PackedChunk, read_index
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import CorruptError, DsecError
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import Descriptor


class LostFrameError(CorruptError):
    """A frame that was there is gone or damaged: the layer has to be packed without those."""


class StoredFrames:
    """The frames of one layer, whose `packs` lie in `blobs`. Safe to call from many threads.

    A pack that is missing, or whose index is damaged, has no frames. Before any frame of it is used
    a pack is checked whole.
    """

    def __init__(self, blobs: BlobReader, packs: Sequence[Descriptor], table: ChunkTable) -> None:
        self._blobs = blobs
        self._packs = packs
        self._numbers = {chunk.digest: chunk.pack for chunk in table}
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._indexes: dict[int, dict[bytes, PackedChunk]] = {}
        self._sound: dict[int, bool] = {}

    def has(self, digest: bytes) -> bool:
        """Whether the layer has a chunk, as far as the index of its pack tells."""
        number = self._numbers.get(digest)
        return number is not None and digest in self._index(number)

    def size(self, digest: bytes) -> int:
        """The bytes of the stored form of a chunk. Raises LostFrameError."""
        return self._place(digest)[1].stored_length

    def read(self, digest: bytes) -> bytes:
        """The stored form of a chunk. Raises LostFrameError."""
        number, chunk = self._place(digest)
        if not self._is_sound(number):
            raise _lost(digest)
        try:
            return self._blobs.read(self._packs[number], chunk.offset, chunk.stored_length)
        except DsecError as error:  # it has just been removed
            raise _lost(digest) from error

    def beginning(self, digest: bytes) -> RepeatedPack | None:
        """The pack that begins with a chunk."""
        number = self._numbers.get(digest)
        index = {} if number is None else self._index(number)
        if number is None or next(iter(index), None) != digest:
            return None
        return RepeatedPack(self, self._packs[number], list(index.values()))

    def stream(self, pack: Descriptor) -> Iterator[bytes]:
        """The bytes of one of the packs, checked on the way. Raises CorruptError or StoreError."""
        return self._blobs.stream(pack)

    def _place(self, digest: bytes) -> tuple[int, PackedChunk]:
        number = self._numbers.get(digest)
        chunk = None if number is None else self._index(number).get(digest)
        if number is None or chunk is None:
            raise _lost(digest)
        return number, chunk

    def _index(self, number: int) -> dict[bytes, PackedChunk]:
        """The chunks of a pack in their order; none when that cannot be told."""
        known = self._indexes.get(number)
        if known is not None:
            return known
        pack = self._packs[number]
        with self._locks[number]:
            if number not in self._indexes:
                try:
                    chunks = read_index(partial(self._blobs.read, pack), pack.size)
                except DsecError:
                    chunks = []
                index = {chunk.digest: chunk for chunk in chunks}
                # No pack of ours has a chunk twice.
                self._indexes[number] = index if len(index) == len(chunks) else {}
            return self._indexes[number]

    def _is_sound(self, number: int) -> bool:
        with self._locks[number]:
            if number not in self._sound:
                try:
                    for _ in self._blobs.stream(self._packs[number]):
                        pass
                    self._sound[number] = True
                except DsecError:
                    self._sound[number] = False
            return self._sound[number]


def _lost(digest: bytes) -> LostFrameError:
    return LostFrameError(f"the frame of chunk blake3:{digest.hex()} is lost")


class RepeatedPack:
    """A pack in the making that begins like one of before: nothing is written while it does."""

    def __init__(
        self, frames: StoredFrames, pack: Descriptor, chunks: Sequence[PackedChunk]
    ) -> None:
        self.pack = pack
        self._frames = frames
        self._chunks = chunks
        self._count = 0

    def take(self, digest: bytes) -> PackedChunk | None:
        """The next chunk, when the pack of before goes on with it."""
        if self._count == len(self._chunks) or self._chunks[self._count].digest != digest:
            return None
        self._count += 1
        return self._chunks[self._count - 1]

    @property
    def taken(self) -> Sequence[PackedChunk]:
        """The chunks that it has so far."""
        return self._chunks[: self._count]

    @property
    def is_whole(self) -> bool:
        """Whether this is the pack of before."""
        return self._count == len(self._chunks)

    def stream(self) -> Iterator[bytes]:
        """The bytes of the pack of before. Raises CorruptError or StoreError."""
        return self._frames.stream(self.pack)
