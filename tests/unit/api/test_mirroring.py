"""From store to store: what is chosen arrives once, and it is known what is complete there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.api import composing, mirroring
from dsec_layers.api.moving import Limits
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import CorruptError, InvalidInputError, StoreError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry.directory import DirectoryStore
from tests.support.packed import pack_files

BASE, TOOL, ENV, OTHER = map(
    Reference.parse, ("base/b:1", "toolkit/t:1", "env/e:v1", "env/other/e:v2")
)


@pytest.fixture
def source(tmp_path: Path) -> DirectoryStore:
    bench = Workbench(tmp_path / "home")
    pack_files(bench, BASE, {"a": b"a" * 9000})
    pack_files(bench, TOOL, {"t": b"t" * 9000}, base=bench.resolve(BASE))
    composing.compose(bench, [BASE, TOOL], ENV)
    composing.compose(bench, [BASE], OTHER)
    return bench.local


@pytest.fixture
def destination(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "there", create=True)


def names(store: Store) -> list[str]:
    return [str(reference) for reference, _ in store.tags()]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("env", ["env/e:v1", "env/other/e:v2"]),
        ("env/*", ["env/e:v1", "env/other/e:v2"]),
        ("env/?", ["env/e:v1"]),
        ("env/*:v2", ["env/other/e:v2"]),
        ("*/t", ["toolkit/t:1"]),
        ("*", ["base/b:1", "toolkit/t:1", "env/e:v1", "env/other/e:v2"]),
    ],
)
def test_selectors(source: DirectoryStore, selector: str, chosen: list[str]) -> None:
    found = [str(reference) for reference, _ in mirroring.selected(source, [selector])]
    assert sorted(found) == sorted(chosen)


def test_a_selector_that_chooses_nothing(source: DirectoryStore) -> None:
    with pytest.raises(InvalidInputError, match="'base/x' chooses nothing"):
        mirroring.selected(source, ["env", "base/x"])


def test_what_is_missing_is_copied_once(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    would = mirroring.sync(["env/e"], source, destination, dry_run=True)
    assert (would.ready, would.copied_bytes, names(destination)) == ((), 0, [])
    assert would.references[0].missing_bytes > 0
    done = mirroring.sync(["env/e"], source, destination)
    assert done.copied_bytes == would.references[0].missing_bytes
    assert done.ready == ("env/e:v1",)
    again = mirroring.sync(["env", "base"], source, destination)
    assert [row.complete for row in again.references] == [True] * 3
    assert again.references[-1].reference == "env/other/e:v2"
    assert 0 < again.copied_bytes < 2000, "only the other index"
    assert names(destination) == ["base/b:1", "env/e:v1", "env/other/e:v2"]


def test_a_tag_that_has_moved_is_moved_there(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    mirroring.sync(["env"], source, destination)
    destination.tag(ENV, destination.resolve(OTHER))
    report = mirroring.sync(["env"], source, destination, dry_run=True)
    assert [row.complete for row in report.references] == [False, True]
    mirroring.sync(["env"], source, destination)
    assert destination.resolve(ENV) == source.resolve(ENV)


def test_a_problem_stops_only_what_has_it(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    source.delete(source.resolve(TOOL))
    done = mirroring.sync(["env"], source, destination)
    assert [bool(row.problem) for row in done.references] == [True, False]
    assert done.exit_code == 4
    assert done.ready == ("env/other/e:v2",)


def test_an_interrupted_copy_goes_on(
    source: DirectoryStore, destination: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[Descriptor] = []
    put = DirectoryStore.put

    def failing(self: DirectoryStore, blob: Descriptor, *args: object, **more: object) -> bool:
        if len(puts) == 4:
            raise StoreError("the line is cut")
        puts.append(blob)
        return put(self, blob, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectoryStore, "put", failing)
    with pytest.raises(StoreError):
        mirroring.copy([ENV], source, destination, Limits(jobs=1))
    assert names(destination) == []
    arrived = sum(blob.size for blob in destination.blobs())
    assert arrived > 0
    monkeypatch.setattr(DirectoryStore, "put", put)
    (moved,) = mirroring.copy([ENV], source, destination)
    assert moved.skipped_bytes == arrived
    assert names(destination) == [str(ENV)]


def test_damage_is_not_mirrored(source: DirectoryStore, destination: DirectoryStore) -> None:
    path = next((source.root / "packs").glob("*/*"))
    path.chmod(0o644)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CorruptError):
        mirroring.copy([ENV], source, destination)
    assert names(destination) == []
