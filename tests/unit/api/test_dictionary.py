"""Chunks of named layers are referred to; which they were stands in the provenance."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dsec_layers.api import dictionary, importing
from dsec_layers.api.importing import ImportOptions
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.manifest import PACK_TYPE
from dsec_layers.model.reference import Reference
from dsec_layers.registry import layers, leases

OLD, NEW = Reference.parse("base/b:1"), Reference.parse("base/b:2")
DATA = random.Random(5).randbytes(3_000_000)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    root = tmp_path / "root"
    root.mkdir()
    (root / "large").write_bytes(DATA)
    made = Workbench(tmp_path / "home")
    importing.import_(made, str(root), OLD)
    (root / "new").write_bytes(DATA[:5000][::-1])
    return made


def packs(bench: Workbench, reference: Reference) -> dict[str, int]:
    manifest = layers.load_manifest(bench.local, bench.resolve(reference))
    return {pack.digest: pack.size for pack in manifest.packs}


def test_only_what_is_new_is_stored(bench: Workbench, tmp_path: Path) -> None:
    source = str(tmp_path / "root")
    alone = importing.import_(bench, source, NEW)
    assert not packs(bench, OLD).keys() & packs(bench, NEW).keys()
    named = importing.import_(bench, source, NEW, ImportOptions(chunk_dicts=[OLD]))
    assert named.digest != alone.digest
    new = {
        digest: size
        for digest, size in packs(bench, NEW).items()
        if digest not in packs(bench, OLD)
    }
    assert 0 < sum(new.values()) < 10_000
    layer = layers.load_layer(bench.local, bench.resolve(NEW))
    assert layer.config.provenance.inputs == {"chunk-dict 1": bench.resolve(OLD).digest}
    again = importing.import_(bench, source, NEW, ImportOptions(chunk_dicts=[OLD], workers=1))
    assert again.digest == named.digest
    assert importing.import_(bench, source, NEW).digest == alone.digest, "nothing is used unasked"


def test_a_small_file_is_taken_from_among_changed_neighbours(
    bench: Workbench, tmp_path: Path
) -> None:
    root, rng = tmp_path / "root", random.Random(6)
    for number in range(40):
        (root / f"{number}").write_bytes(rng.randbytes(9000))
    importing.import_(bench, str(root), OLD)
    for number in range(0, 40, 4):
        (root / f"{number}").write_bytes(rng.randbytes(9000))
    importing.import_(bench, str(root), NEW, ImportOptions(chunk_dicts=[OLD]))
    new = packs(bench, NEW).items() - packs(bench, OLD).items()
    assert 10 * 9000 < sum(size for _, size in new) < 11 * 9000


def test_its_data_must_be_here(bench: Workbench) -> None:
    for blob in list(bench.local.blobs()):
        if blob.media_type == PACK_TYPE:
            bench.local.delete(blob)
    with leases.hold(bench.local, purpose="t") as held, pytest.raises(NotFoundError) as error:
        dictionary.load(bench, [OLD], held)
    assert "pull base/b:1" in (error.value.hint or "")
