from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import blake3
import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder import contents as contents_module
from dsec_layers.builder.pack import PackedLayer, pack_layer
from dsec_layers.chunks import pack as pack_module
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import CapabilityMissingError, CorruptError, InvalidInputError, NoSpaceError
from dsec_layers.model.content import Content, LocalFile, Source, Spooled
from dsec_layers.model.manifest import LayerManifest, Provenance, decode_config
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support import trees
from tests.support.memory_store import MemoryStore
from tests.support.profiles import fewer


def pack(
    source: Source,
    store: MemoryStore,
    work_dir: Path,
    *,
    workers: int | None = None,
    known: list[KnownLayer] | None = None,
) -> PackedLayer:
    layer = pack_layer(
        source,
        kind=Kind.WORKSPACE,
        name="demo",
        store=store,
        work_dir=work_dir,
        workers=workers,
        known=known or [],
    )
    assert list(work_dir.iterdir()) == []
    return layer


def source_of(tree: Tree, contents: trees.Contents, folder: Path) -> Source:
    """Contents in files of `folder`, digests not known; the last is spooled without its holes."""
    places: dict[bytes, Content] = {}
    for number, (path, data) in enumerate(contents.items()):
        place = os.fsencode(folder / str(number))
        if number == len(contents) - 1:
            runs = trees.data_runs(data)
            stored = b"".join(data[at : at + length] for at, length in runs)
            folder.joinpath(str(number)).write_bytes(b"before" + stored)
            starts = [6 + sum(length for _, length in runs[:n]) for n in range(len(runs))]
            places[path] = Spooled(
                place, tuple((*run, at) for run, at in zip(runs, starts, strict=True))
            )
        else:
            trees.write_sparse(place, data)
            places[path] = LocalFile(place)
    unknown = [
        msgspec.structs.replace(entry, digest=b"") if entry.digest else entry for entry in tree
    ]
    return Source(Tree.of(unknown), places)


def files(**contents: bytes) -> tuple[Tree, trees.Contents]:
    by_path = {name.encode(): data for name, data in contents.items()}
    entries = [
        Entry(path=path, kind=EntryKind.FILE, size=len(data)) for path, data in by_path.items()
    ]
    return Tree.of(entries), by_path


def read_back(store: MemoryStore, layer: PackedLayer) -> tuple[Tree, trees.Contents]:
    """The tree and contents of a layer, from its blobs alone."""
    manifest = LayerManifest.decode(store.read(layer.manifest.descriptor()))
    config = decode_config(store.read(manifest.config))
    image = zstandard.decompress(store.read(manifest.metadata))
    encoded = zstandard.decompress(store.read(manifest.table))
    for part, plain in ((image, config.metadata), (encoded, config.table)):
        digest = f"blake3:{blake3.blake3(part).hexdigest()}"
        assert (len(part), digest) == (plain.size_bytes, plain.digest)
    table = ChunkTable.decode(encoded)
    assert [(f"sha256:{ref.sha256.hex()}", ref.size) for ref in table.packs] == [
        (blob.digest, blob.size) for blob in manifest.packs
    ]
    device = b"".join(
        decode_chunk(
            store.read(manifest.packs[chunk.pack], chunk.pack_offset, chunk.stored_length),
            chunk.length,
            chunk.digest,
        )
        for chunk in table
    )
    erofs = ErofsImage(image)
    assert erofs.device_blocks * 4096 == len(device) == config.sizes.device_bytes
    tree = Tree.of(erofs.walk())
    contents = {}
    for entry in tree:
        if entry.kind is EntryKind.FILE:
            data = bytearray(entry.size)
            for extent in erofs.extents(entry.path):
                at, end = extent.file_offset, min(extent.file_offset + extent.length, entry.size)
                data[at:end] = device[extent.device_offset :][: end - at]
            contents[entry.path] = bytes(data)
    return tree, contents


def without_digests(tree: Tree) -> list[Entry]:
    return [msgspec.structs.replace(entry, digest=b"") for entry in tree]


@fewer
@given(drawn=trees.trees(), workers=st.integers(1, 3))
def test_a_layer_is_the_tree_it_was_packed_from(
    drawn: tuple[Tree, trees.Contents], workers: int, folders: Iterator[Path]
) -> None:
    tree, contents = drawn
    store, folder = MemoryStore(), next(folders)
    layer = pack(source_of(tree, contents, folder), store, next(folders), workers=workers)
    assert layer.tree == tree
    assert layer.config.tree_digest == str(tree.digest())
    back, data = read_back(store, layer)
    assert without_digests(back) == without_digests(tree)
    assert data == contents


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders without end; those before the last two are removed again."""

    def make() -> Iterator[Path]:
        made: list[Path] = []
        while True:
            made.append(tmp_path_factory.mktemp("pack"))
            if len(made) > 2:
                shutil.rmtree(made.pop(0))
            yield made[-1]

    return make()


def test_blobs_are_put_before_what_refers_to_them(tmp_path: Path) -> None:
    store = MemoryStore()
    layer = pack(source_of(*files(a=b"text"), tmp_path), store, work(tmp_path))
    *before, last = store.written
    assert last == layer.manifest.descriptor()
    assert {blob.digest for blob in before} == {blob.digest for blob in layer.manifest.blobs}


def work(folder: Path) -> Path:
    path = folder / "work"
    path.mkdir(exist_ok=True)
    return path


def test_the_config_describes_the_layer(tmp_path: Path) -> None:
    tree, contents = files(a=b"x" * 5000, b=b"x" * 5000, c=b"", d=bytes(9000))
    run = RunConfig(env={"A": "b"})
    provenance = Provenance(source="a test")
    layer = pack_layer(
        source_of(tree, contents, tmp_path),
        kind=Kind.TOOLKIT,
        name="tools",
        run=run,
        provenance=provenance,
        store=MemoryStore(),
        work_dir=work(tmp_path),
    )
    config = layer.config
    assert (config.kind, config.name) == (Kind.TOOLKIT, "tools")
    assert (config.run, config.provenance) == (run, provenance)
    sizes = config.sizes
    assert (sizes.entries, sizes.files, sizes.content_bytes) == (5, 4, 19_000)
    assert (sizes.device_bytes, sizes.chunks) == (8192, 1)


def test_neither_threads_nor_folders_alter_the_bytes(tmp_path: Path) -> None:
    tree, contents = files(**{f"f{number:04}": os.urandom(3000) for number in range(800)})
    digests = set()
    for number, workers in enumerate((1, 2, 7)):
        folder = tmp_path / str(number)
        folder.mkdir()
        layer = pack(
            source_of(tree, contents, folder), MemoryStore(), work(folder), workers=workers
        )
        digests.add(layer.manifest.descriptor().digest)
    assert len(digests) == 1


def test_content_read_in_pieces_gives_the_same_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files above the limit are scanned, then streamed; below it they are read once."""
    sparse = os.urandom(400_000) + bytes(100_000) + b"end"
    tree, contents = files(
        big=os.urandom(900_000), holes=bytes(500_000) + b"x", sparse=sparse, zeros=bytes(70_000)
    )
    source = source_of(tree, contents, tmp_path)
    store = MemoryStore()
    whole = pack(source, store, work(tmp_path))
    monkeypatch.setattr(contents_module, "READ_WHOLE_BYTES", 1000)
    assert pack(source, store, work(tmp_path)).manifest == whole.manifest
    assert read_back(store, whole)[1] == contents


def test_progress_sums_to_the_content(tmp_path: Path) -> None:
    steps: list[int] = []
    tree, contents = files(a=bytes(5_000_000), b=b"x" * 3_000_000, c=b"y")
    pack_layer(
        source_of(tree, contents, tmp_path),
        kind=Kind.BASE,
        name="x",
        store=MemoryStore(),
        work_dir=work(tmp_path),
        progress=steps.append,
    )
    assert sum(steps) == 8_000_001
    assert len(steps) > 1


@pytest.mark.parametrize("change", ["shorter", "longer", "gone", "link", "directory"])
@pytest.mark.parametrize("size", [5000, 12_000_000])
def test_a_file_that_changed_since_the_walk_is_named(
    tmp_path: Path, change: str, size: int
) -> None:
    source = source_of(*files(a=b"x" * size, b=b"unrelated"), tmp_path)
    path = tmp_path / "0"
    if change in ("shorter", "longer"):
        os.truncate(path, size - 1 if change == "shorter" else size + 1)
    else:
        path.unlink()
    if change == "link":
        path.symlink_to("1")
    if change == "directory":
        path.mkdir()
    store = MemoryStore()
    with pytest.raises(CorruptError, match="/0 changed while it was being packed"):
        pack(source, store, work(tmp_path))
    assert store.written == []
    assert list(work(tmp_path).iterdir()) == []


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(contents_module, "read_whole", refuse)
    source = source_of(*files(a=b"text", b=b"spooled"), tmp_path)
    with pytest.raises(CapabilityMissingError, match=r"cannot read .*/0: Permission denied"):
        pack(source, MemoryStore(), work(tmp_path))


def test_a_digest_that_is_known_is_checked(tmp_path: Path) -> None:
    tree, contents = files(a=b"text")
    source = source_of(tree, contents, tmp_path)
    wrong = Tree.of(msgspec.structs.replace(e, digest=b"0" * 32 if e.path else b"") for e in tree)
    with pytest.raises(CorruptError, match="b'a' does not match its digest"):
        pack(Source(wrong, source.contents), MemoryStore(), work(tmp_path))


def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pack_module.PackWriter, "append", full)
    store = MemoryStore()
    with pytest.raises(NoSpaceError, match="no space left for packing in"):
        pack(source_of(*files(a=b"text"), tmp_path), store, work(tmp_path))
    assert store.written == []
    assert list(work(tmp_path).iterdir()) == []


def test_a_store_that_fails_in_the_background_is_heard(tmp_path: Path) -> None:
    class Full(MemoryStore):
        def put(self, *_: object, **__: object) -> bool:
            raise NoSpaceError("the store is full")

    with pytest.raises(NoSpaceError, match="the store is full"):
        pack(source_of(*files(a=b"text"), tmp_path), Full(), work(tmp_path))


def known_layer(layer: PackedLayer, store: MemoryStore) -> KnownLayer:
    encoded = zstandard.decompress(store.read(layer.manifest.table))
    return KnownLayer(ChunkTable.decode(encoded), layer.manifest.packs)


def test_what_a_parent_holds_is_not_stored_again(tmp_path: Path) -> None:
    store = MemoryStore()
    big = os.urandom(700_000)
    base = pack(source_of(*files(a=b"small", lib=big), tmp_path), store, work(tmp_path))
    store.written.clear()
    source = source_of(*files(copy=big), tmp_path)
    layer = pack(source, store, work(tmp_path), known=[known_layer(base, store)])
    assert layer.manifest.packs == base.manifest.packs
    assert not [blob for blob in store.written if blob in layer.manifest.packs]
    assert read_back(store, layer)[1] == {b"copy": big}


def test_a_new_version_stores_what_is_new(tmp_path: Path) -> None:
    store = MemoryStore()
    rng = random.Random(1)  # where groups end depends on the contents
    contents = {f"f{number:04}": rng.randbytes(3000) for number in range(2000)}
    first = pack(source_of(*files(**contents), tmp_path), store, work(tmp_path))
    contents["f1000"] = b"changed"
    contents["f1000a"] = b"new"
    source = source_of(*files(**contents), tmp_path)
    second = pack(source, store, work(tmp_path), known=[known_layer(first, store)])
    new = [blob for blob in second.manifest.packs if blob not in first.manifest.packs]
    assert sum(blob.size for blob in new) < 0.15 * sum(blob.size for blob in first.manifest.packs)
    assert read_back(store, second)[1] == {name.encode(): data for name, data in contents.items()}


def test_a_terabyte_of_holes_is_packed_by_its_data(tmp_path: Path) -> None:
    """The index of its holes would be too long: they are rounded to 1 MiB, and stay holes."""
    size, at = 2**40, 2**39 + 4096
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.seek(at)
        file.write(b"x" * 4096)
        file.truncate(size)
    tree = Tree.of([Entry(path=b"sparse", kind=EntryKind.FILE, size=size)])
    store = MemoryStore()
    source = Source(tree, {b"sparse": LocalFile(os.fsencode(path))})
    layer = pack(source, store, work(tmp_path))
    assert layer.config.sizes.content_bytes == size
    assert layer.config.sizes.device_bytes == 2**20
    image = ErofsImage(zstandard.decompress(store.read(layer.manifest.metadata)))
    extents = image.extents(b"sparse")
    assert [(extent.file_offset, extent.length) for extent in extents] == [(2**39, 2**20)]


def test_holes_that_would_have_to_be_stored_are_refused(tmp_path: Path) -> None:
    entry = Entry(path=b"f", kind=EntryKind.FILE, size=1 << 62)
    (tmp_path / "spool").write_bytes(b"x" * 4096)
    content = Spooled(os.fsencode(tmp_path / "spool"), ((0, 4096, 0),))
    source = Source(Tree.of([entry]), {b"f": content})
    with pytest.raises(InvalidInputError, match="b'f' has 4611686018427387904 bytes, and holes"):
        pack(source, MemoryStore(), work(tmp_path))
