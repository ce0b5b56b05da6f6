from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
import zstandard

from dsec_layers.builder.borrowing import copied_up
from dsec_layers.builder.pack import PackedLayer, pack_layer
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import CorruptError
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.reference import Kind
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.memory_store import MemoryStore

Files = dict[bytes, bytes]


class Workshop:
    """Packs layers one on the other into a store in memory, and reads them back."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.chunks_read = 0
        self._folder = folder

    def pack(self, files: Files, base: PackedLayer | None = None) -> PackedLayer:
        source = self._source(files)
        known = [self._known(base, source)] if base else []
        self.store.written.clear()
        work = self._folder / "work"
        work.mkdir(exist_ok=True)
        return pack_layer(
            source, kind=Kind.BASE, name="x", store=self.store, work_dir=work, known=known
        )

    def new_packs(self, layer: PackedLayer) -> list[int]:
        """The sizes of the packs that the last `pack` wrote."""
        return [blob.size for blob in layer.manifest.packs if blob in self.store.written]

    def read(self, layer: PackedLayer) -> Files:
        table = self._table(layer)
        device = b"".join(self._read_chunk(layer, chunk) for chunk in table)
        image = self._image(layer)
        files = {}
        for entry in image.walk():
            if entry.kind is EntryKind.FILE:
                data = bytearray(entry.size)
                for extent in image.extents(entry.path):
                    piece = device[extent.device_offset :][: extent.length]
                    data[extent.file_offset : extent.file_offset + extent.length] = piece
                files[entry.path] = bytes(data[: entry.size])
        return files

    def _known(self, layer: PackedLayer, source: Source) -> KnownLayer:
        def read(chunk: Chunk) -> bytes:
            self.chunks_read += 1
            return self._read_chunk(layer, chunk)

        table = self._table(layer)
        contents = copied_up(source, self._image(layer), table, read)
        return KnownLayer(table, layer.manifest.packs, contents)

    def _source(self, files: Files) -> Source:
        places = {}
        for number, (path, data) in enumerate(files.items()):
            place = self._folder / f"{len(self.store.blobs)}-{number}"
            place.write_bytes(data)
            places[path] = LocalFile(os.fsencode(place))
        entries = [
            Entry(path=path, kind=EntryKind.FILE, size=len(data), mode=len(self.store.blobs))
            for path, data in files.items()
        ]
        folders = {path.rpartition(b"/")[0] for path in files} - {b""}
        entries += [Entry(path=path, kind=EntryKind.DIRECTORY) for path in folders]
        return Source(Tree.of(entries), places)

    def _table(self, layer: PackedLayer) -> ChunkTable:
        return ChunkTable.decode(zstandard.decompress(self.store.read(layer.manifest.table)))

    def _image(self, layer: PackedLayer) -> ErofsImage:
        return ErofsImage(zstandard.decompress(self.store.read(layer.manifest.metadata)))

    def _read_chunk(self, layer: PackedLayer, chunk: Chunk) -> bytes:
        pack = layer.manifest.packs[chunk.pack]
        stored = self.store.read(pack, chunk.pack_offset, chunk.stored_length)
        return decode_chunk(stored, chunk.length, chunk.digest)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


BASE: Files = {b"lib/%03d" % number: os.urandom(5000) for number in range(300)}
HOLES = b"x" * 4096 + bytes(8192) + b"y" * 5000


def test_a_link_to_a_small_file_of_the_base_adds_no_data(workshop: Workshop) -> None:
    """The upper then holds the file copied up and its new name."""
    base = workshop.pack(BASE)
    data = BASE[b"lib/123"]
    layer = workshop.pack({b"lib/123": data, b"link": data}, base)
    assert workshop.new_packs(layer) == []
    assert layer.manifest.packs == base.manifest.packs
    assert workshop.read(layer) == {b"lib/123": data, b"link": data}


def test_changed_attributes_of_many_small_files_add_no_data(workshop: Workshop) -> None:
    base = workshop.pack(BASE)
    changed = {path: BASE[path] for path in list(BASE)[::7]}
    layer = workshop.pack(changed, base)
    assert workshop.new_packs(layer) == []
    assert workshop.read(layer) == changed


def test_new_files_are_stored_beside_borrowed_ones(workshop: Workshop) -> None:
    base = workshop.pack(BASE)
    files = {b"a": b"new", b"lib/007": BASE[b"lib/007"], b"lib/008": b"z" * 5000, b"z": b"new too"}
    layer = workshop.pack(files, base)
    assert [size < 1000 for size in workshop.new_packs(layer)] == [True]
    assert workshop.read(layer) == files


def test_a_file_with_holes_is_borrowed_with_its_holes(workshop: Workshop) -> None:
    base = workshop.pack({**BASE, b"holes": HOLES})
    layer = workshop.pack({b"holes": HOLES}, base)
    assert workshop.new_packs(layer) == []
    assert workshop.read(layer) == {b"holes": HOLES}


def test_a_pack_that_would_give_too_little_is_left_alone(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = workshop.pack(BASE)
    monkeypatch.setattr("dsec_layers.chunks.packs.PACK_WORTH_DIVISOR", 1)
    layer = workshop.pack({b"lib/123": BASE[b"lib/123"], b"more": b"text"}, base)
    assert set(map(str, layer.manifest.packs)).isdisjoint(map(str, base.manifest.packs))
    assert workshop.read(layer) == {b"lib/123": BASE[b"lib/123"], b"more": b"text"}


def test_borrowing_from_a_layer_that_borrows(workshop: Workshop) -> None:
    base = workshop.pack(BASE)
    middle = workshop.pack({b"lib/050": BASE[b"lib/050"], b"new": b"text"}, base)
    top = workshop.pack({b"lib/050": BASE[b"lib/050"]}, middle)
    assert top.manifest.packs == base.manifest.packs
    assert workshop.read(top) == {b"lib/050": BASE[b"lib/050"]}


def test_only_files_of_the_same_path_and_size_are_read(workshop: Workshop) -> None:
    base = workshop.pack(BASE)
    workshop.pack({b"lib/001": b"shorter", b"other": BASE[b"lib/002"], b"lib/999": b"x"}, base)
    assert workshop.chunks_read == 0
    workshop.pack({b"lib/001": BASE[b"lib/001"], b"lib/002": BASE[b"lib/002"]}, base)
    assert workshop.chunks_read == 1


def test_a_directory_or_link_in_the_place_of_a_file_is_no_match(workshop: Workshop) -> None:
    base = workshop.pack({b"a/b": b"text", b"c": b"text"})
    source = Source(
        Tree.of(
            [Entry(path=b"a", kind=EntryKind.FILE, size=4), Entry(path=b"c", kind=EntryKind.FIFO)]
        )
    )
    assert workshop._known(base, source).contents == {}


def test_hard_links_share_what_is_borrowed(workshop: Workshop) -> None:
    base = workshop.pack(BASE)
    data = BASE[b"lib/200"]
    source = workshop._source({b"lib/200": data, b"link": data})
    linked = Tree.of(
        msgspec.structs.replace(entry, link_group=1) if entry.kind is EntryKind.FILE else entry
        for entry in source.tree
    )
    known = workshop._known(base, source)
    layer = pack_layer(
        Source(linked, source.contents),
        kind=Kind.BASE,
        name="x",
        store=workshop.store,
        work_dir=workshop._folder,
        known=[known],
    )
    assert layer.manifest.packs == base.manifest.packs
    assert workshop.read(layer) == {b"lib/200": data, b"link": data}


def test_many_gigabytes_of_holes_are_not_put_together_in_memory(workshop: Workshop) -> None:
    size = 1 << 34
    path = workshop._folder / "sparse"
    with path.open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(size)
    entry = Entry(path=b"f", kind=EntryKind.FILE, size=size)
    source = Source(Tree.of([entry]), {b"f": LocalFile(os.fsencode(path))})
    base = pack_layer(
        source, kind=Kind.BASE, name="x", store=workshop.store, work_dir=workshop._folder
    )
    assert workshop._known(base, source).contents == {}


def test_a_file_behind_the_device_is_corrupt(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = workshop.pack(BASE)
    source = workshop._source({b"lib/123": BASE[b"lib/123"]})
    monkeypatch.setattr(ChunkTable, "decode", lambda data: ChunkTable([], []))
    with pytest.raises(CorruptError, match="b'lib/123' of the layer below lies behind"):
        workshop._known(base, source)
