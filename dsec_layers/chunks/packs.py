"""The packs of a new layer: which chunks are stored anew, which are referred to in other layers.

Each chunk is stored once. One that a known layer holds is taken from its pack when the new layer
uses at least 1/64 of the bytes of that pack. Below that the pack would have to be kept, and copied
from store to store, for too little, and the chunk is stored again.

A pack that comes out as one of an earlier version of the layer did is not written again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from dsec_layers.chunks.constants import PACK_WORTH_DIVISOR
from dsec_layers.chunks.frames import RepeatedPack, StoredFrames
from dsec_layers.chunks.laterpack import LaterPack
from dsec_layers.chunks.pack import is_full
from dsec_layers.chunks.table import Chunk, ChunkTable, PackRef
from dsec_layers.model.manifest import Descriptor

Publish = Callable[[Path, Descriptor], None]


class Held(NamedTuple):
    """Where a known layer holds a small content: in one chunk of its table.

    `runs` are (offset in the content, offset in the plain chunk, length), at multiples of 4 KiB.
    """

    chunk: Chunk
    runs: tuple[tuple[int, int, int], ...]


class KnownLayer(msgspec.Struct, frozen=True):
    """A layer whose packs may be referred to: its chunk table and the packs of its manifest.

    `contents` tells by content digest where small contents lie in it, as far as that is known.
    """

    table: ChunkTable
    packs: tuple[Descriptor, ...]
    contents: Mapping[bytes, Held] = {}


class _Place(NamedTuple):
    """Where a chunk is stored; packs are numbered as the set meets them."""

    pack: int
    offset: int
    stored_length: int


class PackSet:
    """Takes the chunks of a device in order and writes the packs that are missing to `folder`.

    Each pack is handed to `publish` when it is whole; those that are as in `frames` are in
    `repeated` instead. A context manager: leaving it removes what was not published. Only `needs`
    may be called from other threads.
    """

    def __init__(
        self,
        folder: Path,
        publish: Publish,
        known: Iterable[KnownLayer] = (),
        frames: StoredFrames | None = None,
    ) -> None:
        self._folder = folder
        self._publish = publish
        self._frames = frames
        self._repeated: RepeatedPack | None = None
        self.repeated: list[RepeatedPack] = []
        self._packs: list[Descriptor] = []
        self._writer: LaterPack | None = None
        self._ended: tuple[int, LaterPack] | None = None  # the pack before, and its number
        self._chunks: list[tuple[bytes, int]] = []
        self._places: dict[bytes, _Place] = {}
        self._known: dict[bytes, _Place] = {}
        self._lacking: dict[int, int] = {}  # known pack -> bytes to use until it is worth keeping
        self._deferred: dict[bytes, tuple[int, _Place]] = {}  # plain length, place in the spool
        self._spool = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by __exit__)
        for layer in known:
            self._learn(layer)

    def __enter__(self) -> PackSet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spool.close()
        for writer in (self._ended and self._ended[1], self._writer):
            if writer is not None:
                writer.abandon()

    def needs(self, digest: bytes) -> bool:
        """Whether `add` wants the stored form of this chunk; it may stop to, it never begins."""
        if digest in self._places:
            return False
        known = self._known.get(digest)
        return known is None or known.pack in self._lacking

    def add(self, digest: bytes, length: int, stored: bytes | None) -> None:
        """Append a chunk of `length` plain bytes.

        `stored` is None when it was not needed, or lies in the frames of before: raises
        LostFrameError when it does not.
        """
        self._chunks.append((digest, length))
        if digest in self._places or digest in self._deferred:
            return
        known = self._known.get(digest)
        if known is None:
            self._store(digest, length, stored)
        elif known.pack not in self._lacking:
            self._places[digest] = known
        else:
            self._defer(digest, length, stored or self._form(digest, None)[1](), known)

    def worth_referring(self, chunks: Iterable[bytes]) -> set[bytes]:
        """Those of these chunks of known layers whose packs give enough, if all of them are used.

        They can be added without their bytes from now on.
        """
        wanted = set(chunks)
        for digest in sorted(wanted - self._places.keys() - self._deferred.keys()):
            pack, _, stored_length = self._known[digest]
            if pack in self._lacking:
                self._lacking[pack] -= stored_length
        self._lacking = {pack: lack for pack, lack in self._lacking.items() if lack > 0}
        return {digest for digest in wanted if not self.needs(digest)}

    def finish(self) -> tuple[tuple[Descriptor, ...], ChunkTable]:
        """Publish the last pack; returns the layer's packs in order of first use, and its table."""
        for digest, (length, place) in self._deferred.items():
            known = self._known[digest]
            if known.pack not in self._lacking:
                self._places[digest] = known
                continue
            self._spool.seek(place.offset)
            self._store(digest, length, self._spool.read(place.stored_length))
        self._close_pack()
        self._publish_ended()
        return self._table()

    def _learn(self, layer: KnownLayer) -> None:
        first = len(self._packs)
        self._packs += layer.packs
        for number, pack in enumerate(layer.packs, first):
            self._lacking[number] = pack.size // PACK_WORTH_DIVISOR
        for chunk in layer.table:
            place = _Place(first + chunk.pack, chunk.pack_offset, chunk.stored_length)
            self._known.setdefault(chunk.digest, place)

    def _defer(self, digest: bytes, length: int, stored: bytes, known: _Place) -> None:
        """Keep the stored form until it is known whether its pack is worth keeping."""
        self._lacking[known.pack] -= len(stored)
        if self._lacking[known.pack] <= 0:
            del self._lacking[known.pack]
            self._places[digest] = known
            return
        self._deferred[digest] = length, _Place(-1, self._spool.tell(), len(stored))
        self._spool.write(stored)

    def _store(self, digest: bytes, length: int, stored: bytes | None) -> None:
        if self._writer is None and self._repeated is None:
            self._repeated = self._frames.beginning(digest) if self._frames else None
            self._packs.append(Descriptor("", "", 0))  # its number is known, its digest comes later
        if self._repeated is not None and (again := self._repeated.take(digest)):
            offset, size = again.offset, again.stored_length
            full = is_full(offset + size, digest, size)
        else:
            writer, (size, get) = self._written(), self._form(digest, stored)
            offset = writer.append(digest, length, size, get)
            full = writer.full
        self._places[digest] = _Place(len(self._packs) - 1, offset, size)
        if full:
            self._close_pack()

    def _written(self) -> LaterPack:
        """The writer of the present pack, with all that it has so far."""
        if self._writer is None:
            self._writer = LaterPack(self._folder / f"pack-{len(self._packs) - 1}")
        if self._repeated is not None:
            for chunk in self._repeated.taken:
                self._writer.append(chunk.digest, chunk.length, *self._form(chunk.digest, None))
            self._repeated = None
        return self._writer

    def _form(self, digest: bytes, stored: bytes | None) -> tuple[int, Callable[[], bytes]]:
        """The size of a stored form, and what gives it: `stored`, or the frames of before."""
        if stored is not None:
            return len(stored), lambda: stored
        if self._frames is None:
            raise ValueError("a chunk that is stored nowhere has no stored form")
        return self._frames.size(digest), partial(self._frames.read, digest)

    def _close_pack(self) -> None:
        if self._repeated is not None and self._repeated.is_whole:
            self._packs[-1] = self._repeated.pack
            self.repeated.append(self._repeated)
            self._repeated = None
        elif self._repeated is not None or self._writer is not None:
            writer = self._written()
            self._publish_ended()
            writer.end()
            self._ended, self._writer = (len(self._packs) - 1, writer), None

    def _publish_ended(self) -> None:
        if self._ended is not None:
            number, writer = self._ended
            pack = self._packs[number] = writer.finish()
            self._ended = None
            self._publish(writer.path, pack)

    def _table(self) -> tuple[tuple[Descriptor, ...], ChunkTable]:
        numbers: dict[int, int] = {}
        chunks: list[Chunk] = []
        position = 0
        for digest, length in self._chunks:
            pack, offset, stored_length = self._places[digest]
            number = numbers.setdefault(pack, len(numbers))
            chunks.append(Chunk(position, offset, length, stored_length, number, digest))
            position += length
        packs = tuple(self._packs[pack] for pack in numbers)
        references = [PackRef(bytes.fromhex(p.parsed_digest.hex), p.size) for p in packs]
        return packs, ChunkTable(references, chunks)
