"""A layer packed anew: the same files, fewer dead bytes, another digest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dsec_layers.api import (
    accounting,
    catalog,
    collecting,
    composing,
    importing,
    looking,
    repacking,
)
from dsec_layers.api.importing import ImportOptions
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import ConflictError, InvalidInputError
from dsec_layers.lazyfs.verify import verify_stored
from dsec_layers.model.reference import Reference
from dsec_layers.registry import layers, tagging
from dsec_layers.registry.collect import Rules

OLD, NEW = Reference.parse("base/b:1"), Reference.parse("base/b:2")
DATA = random.Random(5).randbytes(4_000_000)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """NEW refers to a quarter of the pack of OLD, which has no tag any more."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "large").write_bytes(DATA)
    made = Workbench(tmp_path / "home")
    importing.import_(made, str(root), OLD)
    (root / "large").write_bytes(DATA[:1_000_000])
    importing.import_(made, str(root), NEW, ImportOptions(chunk_dicts=[OLD]))
    catalog.untag(made.local, [OLD])
    return made


def test_dead_bytes_go(bench: Workbench, tmp_path: Path) -> None:
    before = bench.stack(NEW)
    dead = accounting.space(bench.local).dead_bytes
    assert dead > 2_500_000
    (row,) = repacking.repack(bench.local, [NEW], tmp_path)
    after = bench.stack(NEW)
    assert row.after == after.descriptor.digest != row.before == before.descriptor.digest
    assert row.written_bytes < 1_400_000 < 4_000_000 < row.dropped_bytes
    config, was = after.layers[0].config, before.layers[0].config
    assert (config.tree_digest, config.sizes) == (was.tree_digest, was.sizes)
    assert after.layers[0].manifest.metadata == before.layers[0].manifest.metadata
    assert b"".join(looking.cat(bench, NEW, "/large")) == DATA[:1_000_000]
    assert verify_stored(after.layers, str(NEW)).ok
    assert accounting.space(bench.local).dead_bytes == 0
    collecting.gc(bench, None, Rules(grace_s=-1))
    assert sum(blob.size for blob in bench.local.blobs()) < 1_400_000
    assert layers.load_manifest(bench.local, after.descriptor).packs


def test_what_is_used_well_stays(bench: Workbench, tmp_path: Path) -> None:
    (row,) = repacking.repack(bench.local, [NEW], tmp_path, below=0.1)
    assert (row.after, row.written_bytes) == (row.before, 0)
    repacking.repack(bench.local, [NEW], tmp_path)
    (again,) = repacking.repack(bench.local, [NEW], tmp_path)
    assert again.after == again.before


def test_what_cannot_be_repacked(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = Reference.parse("env/e:1")
    composing.compose(bench, [NEW], env)
    for reference in (env, Reference.parse(f"base/b@{bench.resolve(NEW).digest}")):
        with pytest.raises(InvalidInputError, match="no tag of a layer"):
            repacking.repack(bench.local, [reference], tmp_path)
    small = tmp_path / "small"
    small.mkdir()
    load = layers.load_layer

    def moved(*args: object) -> layers.StoredLayer:
        monkeypatch.setattr("dsec_layers.registry.layers.load_layer", load)
        found = load(*args)  # type: ignore[arg-type]
        importing.import_(bench, str(small), NEW)
        return found

    shares = accounting.used_shares(bench.local)
    monkeypatch.setattr(repacking, "used_shares", lambda _: shares)
    monkeypatch.setattr("dsec_layers.registry.layers.load_layer", moved)
    with pytest.raises(ConflictError):
        repacking.repack(bench.local, [NEW], tmp_path)
    assert tagging.BUILDER_KEY in bench.local.tagged(NEW).annotations
