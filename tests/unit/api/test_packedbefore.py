"""What is kept of layers by key and name: which layer it was, and what its packing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.api import packedbefore
from dsec_layers.api.packedbefore import PackedBefore
from dsec_layers.builder.pack import pack_layer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.reference import Reference
from dsec_layers.registry import leases
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.sources.directory import walk

NAME = Reference.parse("base/x:v1")


@pytest.fixture
def before(tmp_path: Path) -> Iterator[PackedBefore]:
    store = DirectoryStore.open(tmp_path / "store", create=True)
    with leases.hold(store, purpose="build") as held:
        yield PackedBefore(tmp_path / "layers", store, held)


def pack(before: PackedBefore, key: str, name: Reference = NAME) -> MountLayer:
    tree = before.folder.parent / "tree"
    tree.mkdir(exist_ok=True)
    (tree / "file").write_bytes(b"content")
    made = pack_layer(
        walk(tree),
        kind=name.kind,
        name=name.name,
        store=before.store,
        work_dir=tree.parent,
        before=before.of(name),
    )
    layer = MountLayer(made.manifest.descriptor(), made.manifest, made.config, before.store)
    before.remember(key, name, layer)
    return layer


def test_a_layer_is_found_by_its_key(before: PackedBefore) -> None:
    layer = pack(before, "key")
    found = before.find("key")
    assert found is not None
    assert found.descriptor == layer.descriptor
    assert before.find("other") is None


def test_a_layer_whose_packs_are_gone_is_not_found(before: PackedBefore) -> None:
    layer = pack(before, "key")
    before.store.delete(layer.manifest.packs[0])
    assert before.find("key") is None


def test_frames_and_memory_are_those_of_the_name(before: PackedBefore) -> None:
    layer = pack(before, "key")
    known = before.of(NAME)
    path = os.fsencode(before.folder.parent / "tree/file")
    assert set(known.memory.files) == {path}
    assert known.frames is not None
    for cuts in known.memory.recipes.values():
        assert all(known.frames.has(cut.digest) for cut in cuts)
    other = before.of(Reference.parse("base/y:v1"))
    assert other.frames is None
    assert not other.memory.files
    before.store.delete(layer.manifest.packs[0])
    frames = before.of(NAME).frames
    assert frames is not None
    assert not any(frames.has(cut.digest) for cuts in known.memory.recipes.values() for cut in cuts)


def test_a_damaged_memory_is_none(before: PackedBefore) -> None:
    pack(before, "key")
    (file,) = before.folder.glob("*.memory")
    file.write_bytes(file.read_bytes()[:-1])
    assert not before.of(NAME).memory.files
    pack(before, "key")
    assert before.of(NAME).memory.files


def test_what_was_used_longest_ago_is_forgotten(
    before: PackedBefore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packedbefore, "_KEPT", {".json": 4, ".memory": 1})
    for number in range(4):
        pack(before, f"key{number}", Reference.parse(f"base/x{number}:v1"))
        for file in before.folder.iterdir():
            os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - 10**9))
    assert len(list(before.folder.glob("*.json"))) == 4
    assert len(list(before.folder.glob("*.memory"))) == 1
    assert before.find("key3") is not None
    assert before.find("key0") is None
    assert before.of(Reference.parse("base/x3:v1")).memory.files
