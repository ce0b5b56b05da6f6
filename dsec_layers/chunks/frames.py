"""Chunks as an earlier layer has stored them: what is in both layers is compressed once.

A frame depends on the plain bytes and on the encoder (`frame.ENCODER`) alone, so a layer is the
same whether its frames are made or found.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import DsecError
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import Descriptor


class StoredFrames:
    """The frames of one layer, whose `packs` lie in `blobs`. Safe to call from many threads.

    A pack is checked whole before anything of it is used; one that is missing or damaged has no
    frames.
    """

    def __init__(self, blobs: BlobReader, packs: Sequence[Descriptor], table: ChunkTable) -> None:
        self._blobs = blobs
        self._packs = packs
        self._chunks = {chunk.digest: chunk for chunk in table}
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._sound: dict[int, bool] = {}

    def has(self, digest: bytes) -> bool:
        """Whether the layer has a chunk, in a sound pack."""
        chunk = self._chunks.get(digest)
        return chunk is not None and self._is_sound(chunk.pack)

    def find(self, digest: bytes) -> bytes | None:
        """The stored form of a chunk, if the layer has it."""
        chunk = self._chunks.get(digest)
        if chunk is None or not self._is_sound(chunk.pack):
            return None
        try:
            return self._blobs.read(self._packs[chunk.pack], chunk.pack_offset, chunk.stored_length)
        except DsecError:  # it has just been removed
            return None

    def _is_sound(self, pack: int) -> bool:
        with self._locks[pack]:
            if pack not in self._sound:
                try:
                    for _ in self._blobs.stream(self._packs[pack]):
                        pass
                    self._sound[pack] = True
                except DsecError:
                    self._sound[pack] = False
            return self._sound[pack]
