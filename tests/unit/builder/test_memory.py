"""A layer packed from what an earlier version has left behind is the one that is packed afresh."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder import contents as contents_module
from dsec_layers.builder.pack import PackedLayer, pack_layer
from dsec_layers.chunks import content
from dsec_layers.chunks.frames import StoredFrames
from dsec_layers.chunks.memory import Before, Memory
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model.content import Content
from dsec_layers.model.reference import Kind
from dsec_layers.sources.directory import walk
from tests.support.memory_store import MemoryStore
from tests.support.profiles import fewest

SIZES = (0, 1, 700, 4096, 30_000, 90_000, 300_000, 500_000)


@dataclass
class Rebuilt:
    """A tree that is packed again and again into one store, each time with the memory of before."""

    tree: Path
    work: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    memory: bytes = Memory().encode()
    last: PackedLayer | None = None

    def pack(self, workers: int | None = None) -> PackedLayer:
        before = Before(self._frames(), Memory.decode(self.memory), self._remember)
        self.last = pack(self.tree, self.work, self.store, before, workers)
        return self.last

    def fresh(self) -> PackedLayer:
        return pack(self.tree, self.work, MemoryStore())

    def _remember(self, memory: Memory) -> None:
        self.memory = memory.encode()

    def _frames(self) -> StoredFrames | None:
        if self.last is None:
            return None
        manifest = self.last.manifest
        table = decode_table(self.store.read(manifest.table), self.last.config.table)
        return StoredFrames(self.store, manifest.packs, table)


def pack(
    tree: Path,
    work: Path,
    store: MemoryStore,
    before: Before | None = None,
    workers: int | None = None,
) -> PackedLayer:
    return pack_layer(
        walk(tree),
        kind=Kind.BASE,
        name="x",
        store=store,
        work_dir=work,
        before=before,
        workers=workers,
    )


def data(seed: int) -> bytes:
    """A content of one of `SIZES`; every third has a hole."""
    rng = random.Random(seed)
    plain = rng.randbytes(SIZES[seed % len(SIZES)])
    return plain[:8192] + bytes(65536) + plain[8192:] if seed % 3 == 0 else plain


@pytest.fixture
def rebuilt(tmp_path: Path) -> Rebuilt:
    tree, work = tmp_path / "tree", tmp_path / "work"
    work.mkdir()
    (tree / "folder").mkdir(parents=True)
    for number in range(24):
        (tree / f"folder/file{number:02}").write_bytes(data(number))
    os.link(tree / "folder/file05", tree / "folder/link")
    return Rebuilt(tree, work)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose contents are opened."""
    names: list[str] = []
    whole, init = content.read_whole, content.ContentReader.__init__

    def read_whole(place: Content, size: int) -> bytes:
        names.append(os.path.basename(os.fsdecode(place.path)))
        return whole(place, size)

    def opened(reader: content.ContentReader, place: Content, size: int) -> None:
        names.append(os.path.basename(os.fsdecode(place.path)))
        init(reader, place, size)

    monkeypatch.setattr(contents_module, "read_whole", read_whole)
    monkeypatch.setattr(content.ContentReader, "__init__", opened)
    return names


def test_what_nobody_has_touched_is_not_read(rebuilt: Rebuilt, read: list[str]) -> None:
    first = rebuilt.pack()
    assert "file07" in read
    read.clear()
    assert rebuilt.pack().manifest == first.manifest
    assert read == []


def test_of_one_changed_file_only_the_neighbours_are_read(
    rebuilt: Rebuilt, read: list[str]
) -> None:
    rebuilt.pack()
    read.clear()
    (rebuilt.tree / "folder/file07").write_bytes(b"other")
    layer = rebuilt.pack()
    assert "file07" in read
    assert 0 < len(read) < 12
    assert layer.manifest == rebuilt.fresh().manifest


edits = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "touch", "move"]), st.integers(0, 23)),
    min_size=1,
    max_size=4,
)


@fewest
@given(rounds=st.lists(edits, min_size=1, max_size=3), workers=st.sampled_from([None, 1, 5]))
def test_the_same_layer_as_afresh(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[tuple[str, int]]],
    workers: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("rebuilt")
    (folder / "work").mkdir()
    (folder / "tree").mkdir()
    rebuilt = Rebuilt(folder / "tree", folder / "work")
    for number in range(24):
        (rebuilt.tree / f"file{number}").write_bytes(data(number))
    rebuilt.pack()
    for number, each in enumerate(rounds, 1):
        for what, file in each:
            edit(rebuilt.tree / f"file{file}", what, number)
        assert rebuilt.pack(workers).manifest == rebuilt.fresh().manifest
    shutil.rmtree(folder)


def edit(path: Path, what: str, seed: int) -> None:
    if what == "write":
        path.write_bytes(data(seed * 31 + len(path.name)))
    elif path.exists() and what == "touch":
        os.utime(path, ns=(seed, seed))
    elif path.exists() and what == "move":
        path.rename(path.with_name(f"{path.name}-{seed}"))
    else:
        path.unlink(missing_ok=True)


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_read(rebuilt: Rebuilt) -> None:
    rebuilt.pack()
    path = rebuilt.tree / "folder/file05"
    status = path.stat()
    path.unlink()
    path.write_bytes(bytes(reversed(data(5))))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert rebuilt.pack().manifest == rebuilt.fresh().manifest


def cut_short(memory: bytes) -> bytes:
    return memory[:-1]


def flipped(memory: bytes) -> bytes:
    return memory[:-9] + bytes([memory[-9] ^ 1]) + memory[-8:]


def of_other_rules(memory: bytes) -> bytes:
    known = Memory.decode(memory)
    return Memory(known.files, known.recipes, "other").encode()


@pytest.mark.parametrize("harm", [cut_short, flipped, of_other_rules, lambda _: b""])
def test_a_memory_that_cannot_be_used_is_none(
    rebuilt: Rebuilt, harm: Callable[[bytes], bytes]
) -> None:
    rebuilt.pack()
    assert Memory.decode(rebuilt.memory).files
    rebuilt.memory = harm(rebuilt.memory)
    assert Memory.decode(rebuilt.memory) == Memory()
    assert rebuilt.pack().manifest == rebuilt.fresh().manifest


def test_without_the_packs_of_before_all_is_read_again(rebuilt: Rebuilt, read: list[str]) -> None:
    first = rebuilt.pack()
    for blob in first.manifest.packs:
        del rebuilt.store.blobs[blob.digest]
    read.clear()
    assert rebuilt.pack().manifest == first.manifest
    assert all(rebuilt.store.has(blob) for blob in first.manifest.packs)
    assert len(set(read)) > 18


def test_a_file_that_is_not_what_is_remembered_fails_the_packing(rebuilt: Rebuilt) -> None:
    """A memory that lies, of a file whose neighbour has changed, so that it must be read."""
    rebuilt.pack()
    known = Memory.decode(rebuilt.memory)
    path = os.fsencode(rebuilt.tree / "folder/file01")
    seen = known.files[path]
    lie = seen._replace(scan=seen.scan._replace(digest=bytes(32)))
    rebuilt.memory = Memory({**known.files, path: lie}, known.recipes).encode()
    with pytest.raises(CorruptError, match="file01 changed"):
        rebuilt.pack()
