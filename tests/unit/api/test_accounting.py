"""What a store holds, counted by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dsec_layers.api import accounting, catalog, composing
from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.lazyfs import tables
from dsec_layers.model.reference import Reference
from dsec_layers.registry import layers
from tests.support.packed import pack_files

BASE, TOOL, ENV = map(Reference.parse, ("base/b:1", "toolkit/t:1", "env/e:v1"))
DATA = random.Random(3).randbytes(600_000)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"a": DATA})
    pack_files(made, TOOL, {"t": DATA[:1000]}, base=made.resolve(BASE))
    composing.compose(made, [BASE, TOOL], ENV)
    return made


def test_sums(bench: Workbench) -> None:
    found = accounting.space(bench.local)
    total = sum(blob.size for blob in bench.local.blobs())
    assert (found.stored_bytes, found.unreachable_bytes) == (total, 0)
    assert found.logical_bytes == 601_000
    assert found.dead_bytes == 0, "all of each pack is in use, to the byte"
    names = {share.name: share for share in found.names}
    assert names["env/e"].stored_bytes == total
    assert names["env/e"].logical_bytes == 601_000
    assert names["base/b"].unique_bytes == 0
    index = bench.resolve(ENV).size
    assert names["env/e"].unique_bytes == index
    assert {share.name for share in found.kinds} == {"base", "toolkit", "env"}
    assert sum(share.unique_bytes for share in found.layers) == total


def test_what_no_tag_leads_to(bench: Workbench) -> None:
    before = accounting.space(bench.local)
    catalog.untag(bench.local, [TOOL, ENV])
    after = accounting.space(bench.local)
    assert after.stored_bytes == before.stored_bytes
    base = layers.load_manifest(bench.local, bench.resolve(BASE))
    kept = bench.resolve(BASE).size + sum(blob.size for blob in base.blobs)
    assert after.unreachable_bytes == before.stored_bytes - kept


def test_shared_and_dead_chunks(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that uses only the first chunk of a pack leaves the rest dead."""
    catalog.tag(bench.local, BASE, Reference.parse("base/same:1"))
    whole = accounting.space(bench.local)
    assert whole.shared_chunks == 0, "one layer under two names is one layer"
    assert whole.chunks > 2
    decode = tables.decode_table

    def first_only(*args: object) -> ChunkTable:
        table = decode(*args)  # type: ignore[arg-type]
        return ChunkTable(table.packs, [table[0]])

    monkeypatch.setattr("dsec_layers.api.accounting.decode_table", first_only)
    part = accounting.space(bench.local)
    assert part.chunks == 2
    assert 200_000 < part.dead_bytes < 600_000
