"""Some chunks of an existing layer in packs of their own, the others where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dsec_layers.chunks.pack import PackWriter
from dsec_layers.chunks.packs import Publish
from dsec_layers.chunks.table import Chunk, ChunkTable, PackRef
from dsec_layers.model.manifest import Descriptor


def repack(
    table: ChunkTable,
    packs: Sequence[Descriptor],
    moved: Iterable[int],
    read: Callable[[Chunk], bytes],
    folder: Path,
    publish: Publish,
) -> tuple[tuple[Descriptor, ...], ChunkTable]:
    """Pack anew the chunks with the numbers in `moved`, in that order; the others stay.

    `read` gives the stored bytes of a chunk, checked. New packs are written to `folder` and handed
    to `publish`. Returns packs in order of first use, and their table; the device is the same, and
    the same input gives the same packs.
    """
    writer = _Writer(folder, publish)
    places: dict[bytes, tuple[int, int]] = {}  # digest -> new pack, offset in it
    anew = dict.fromkeys(moved)
    for index in anew:
        chunk = table[index]
        if chunk.digest not in places:
            places[chunk.digest] = writer.append(chunk, read(chunk))
    written = writer.finish()
    used: dict[str, Descriptor] = {}
    numbers: dict[str, int] = {}
    chunks: list[Chunk] = []
    for index, chunk in enumerate(table):
        pack, offset = packs[chunk.pack], chunk.pack_offset
        if index in anew:
            number, offset = places[chunk.digest]
            pack = written[number]
        used[pack.digest] = pack
        at = numbers.setdefault(pack.digest, len(numbers))
        chunks.append(chunk._replace(pack=at, pack_offset=offset))
    references = [PackRef(bytes.fromhex(p.parsed_digest.hex), p.size) for p in used.values()]
    return tuple(used.values()), ChunkTable(references, chunks)


class _Writer:
    def __init__(self, folder: Path, publish: Publish) -> None:
        self._folder = folder
        self._publish = publish
        self._writer: PackWriter | None = None
        self._done: list[Descriptor] = []

    def append(self, chunk: Chunk, stored: bytes) -> tuple[int, int]:
        if self._writer is None:
            self._writer = PackWriter(self._folder / f"pack-{len(self._done)}")
        place = len(self._done), self._writer.append(chunk.digest, chunk.length, stored)
        if self._writer.full:
            self._close()
        return place

    def finish(self) -> list[Descriptor]:
        self._close()
        return self._done

    def _close(self) -> None:
        if self._writer is not None:
            pack = self._writer.finish()
            self._publish(self._writer.path, pack)
            self._done.append(pack)
            self._writer = None
