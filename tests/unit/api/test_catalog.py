"""Names in stores: what is listed, found, set and removed; what nobody needs goes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsec_layers.api import catalog, collecting, composing
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import (
    CapabilityMissingError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from dsec_layers.lazyfs.journal import Journal
from dsec_layers.lazyfs.wish import Wish
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import tagging
from dsec_layers.registry.collect import Rules
from tests.support.packed import pack_files

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"dir/a": b"below"})
    pack_files(made, TOOL, {"t": b"t"}, base=made.resolve(BASE))
    return made


def test_a_listing_goes_on_after_damage(bench: Workbench) -> None:
    composing.compose(bench, [BASE, TOOL], Reference.parse("env/e"))
    assert all(row.complete and row.layer for row in catalog.listing(bench.local))
    assert [row.reference for row in catalog.listing(bench.local, Kind.ENV)] == ["env/e:latest"]
    bench.local.delete(bench.resolve(TOOL))
    rows = {row.reference: row for row in catalog.listing(bench.local)}
    assert rows["base/b:1"].complete
    for name in ("toolkit/t:1", "env/e:latest"):
        assert rows[name].layer is None
        assert rows[name].problem
        assert not rows[name].complete


def test_removing_is_all_or_nothing(bench: Workbench) -> None:
    with pytest.raises(NotFoundError):
        catalog.untag(bench.local, [BASE, Reference.parse("base/other")])
    with pytest.raises(InvalidInputError, match="has no tag"):
        catalog.untag(bench.local, [BASE, Reference.parse(f"base/b@{bench.resolve(BASE).digest}")])
    assert bench.resolve(BASE)
    catalog.untag(bench.local, [BASE, TOOL])
    assert list(bench.local.tags()) == []


def test_mounted_layers_are_not_collected(bench: Workbench) -> None:
    """A journal record stands for a mount; its layers stay, tagged or not."""
    stack = bench.stack(TOOL)
    wish = Wish(layers=stack.layers, bound=True)
    catalog.untag(bench.local, [BASE, TOOL])
    journal = Journal(bench.home.run)
    with journal.locked():
        journal.put(wish.record(bench.home.run))
    before = {blob.digest for blob in bench.local.blobs()}
    assert collecting.gc(bench, None, Rules(grace_s=-1)).blobs == 0
    assert {blob.digest for blob in bench.local.blobs()} == before
    with journal.locked():
        journal.drop(wish.record(bench.home.run))
    assert collecting.gc(bench, None, Rules(grace_s=-1)).blobs == len(before)


def test_versions_in_their_natural_order(bench: Workbench) -> None:
    for version in ("v10", "v9", "v9.1", "v9-rc2", "2"):
        catalog.tag(bench.local, BASE, Reference.parse(f"base/b:{version}"))
    found = [row.reference for row in catalog.listing(bench.local, *catalog.repository("base/b"))]
    assert found == [f"base/b:{tag}" for tag in ("1", "2", "v9", "v9-rc2", "v9.1", "v10")]
    with pytest.raises(InvalidInputError, match="names a version"):
        catalog.repository("base/b:1")


def test_a_tag_tells_when_and_by_whom(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tagging.BUILDER_VARIABLE, "farm-7")
    pack_files(bench, BASE, {"dir/a": b"new"})
    monkeypatch.setenv(tagging.BUILDER_VARIABLE, "farm-8")
    name = Reference.parse("base/c:1")
    made = catalog.tag(bench.local, BASE, name)
    assert made.builder == "farm-7", "who built it stays who built it"
    assert made.tagged.endswith("Z")
    assert bench.resolve(name) == bench.resolve(BASE)
    assert bench.resolve(name).annotations == {}
    plain = msgspec.structs.replace(bench.resolve(BASE), annotations={})
    bench.local.tag(name, plain)
    assert catalog.listing(bench.local, *catalog.repository("base/c"))[0].tagged == ""
    catalog.tag(bench.local, name, Reference.parse("base/d:1"))
    assert catalog.resolve([bench.local], Reference.parse("base/d:1")).builder == "farm-8"


def test_guards_of_a_tag(bench: Workbench) -> None:
    store, name = bench.local, Reference.parse("base/b:2")
    digest = bench.resolve(BASE).digest
    catalog.tag(store, BASE, name, if_absent=True)
    with pytest.raises(ConflictError):
        catalog.tag(store, BASE, name, if_absent=True)
    catalog.tag(store, Reference.parse(f"base/any@{digest}"), name, expect=digest)
    for guard, other in (("sha256:" + "0" * 64, name), (digest, Reference.parse("base/b:3"))):
        with pytest.raises(ConflictError):
            catalog.tag(store, BASE, other, expect=guard)
    with pytest.raises(InvalidInputError):
        catalog.tag(store, BASE, name, expect="latest")


def test_what_cannot_be_tagged(bench: Workbench) -> None:
    digest = bench.resolve(BASE).digest
    for source, name, error in (
        (BASE, TOOL, InvalidInputError),
        (Reference.parse(f"toolkit/x@{digest}"), TOOL, InvalidInputError),
        (BASE, Reference.parse(f"base/b@{digest}"), InvalidInputError),
        (Reference.parse(f"base/b:1@sha256:{'0' * 64}"), BASE, NotFoundError),
        (Reference.parse(f"base/b@sha256:{'0' * 64}"), BASE, NotFoundError),
    ):
        with pytest.raises(error):
            catalog.tag(bench.local, source, name)


def test_resolving(bench: Workbench, tmp_path: Path) -> None:
    other = Workbench(tmp_path / "other")
    digest = bench.resolve(TOOL).digest
    found = catalog.resolve([other.local, bench.local], TOOL)
    assert (found.digest, found.pinned) == (digest, f"toolkit/t:1@{digest}")
    assert catalog.resolve([bench.local], Reference.parse(found.pinned)).digest == digest
    assert list(other.local.tags()) == [], "nothing was fetched"
    pack_files(bench, TOOL, {"t": b"new"}, base=bench.resolve(BASE))
    with pytest.raises(NotFoundError, match="is now"):
        catalog.resolve([bench.local], Reference.parse(found.pinned))
    bare = Reference.parse(f"toolkit/t@{digest}")
    assert catalog.resolve([bench.local], bare).digest == digest, "no tag is implied"


def test_searching(bench: Workbench) -> None:
    assert [row.reference for row in catalog.search(bench.local, ["T", "oolk"])] == ["toolkit/t:1"]
    assert catalog.search(bench.local, ["t", "nothing"]) == []


def test_a_store_that_is_not_ours_to_collect(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Registry:
        url = "oci://example.com/x"

    monkeypatch.setattr(Workbench, "store", lambda *_: Registry())
    with pytest.raises(CapabilityMissingError, match="its own server"):
        collecting.gc(bench, "oci://example.com/x")


def test_steps_that_no_build_uses(bench: Workbench) -> None:
    old, new = (Reference.parse(f"cache/step:{letter * 64}") for letter in "ab")
    target = bench.resolve(BASE)
    for reference, year in ((old, 2001), (new, 2999)):
        times = {tagging.TIME_KEY: f"{year}-01-01T00:00:00Z"}
        bench.local.tag(reference, msgspec.structs.replace(target, annotations=times))
    assert len(catalog.listing(bench.local)) == 2, "only who asks for the cache sees it"
    assert len(catalog.listing(bench.local, Kind.CACHE)) == 2
    week = 7 * 24 * 3600.0
    would = collecting.gc(bench, None, Rules(dry_run=True), steps_unused_s=week)
    assert (would.steps, len(catalog.listing(bench.local, Kind.CACHE))) == (1, 2)
    assert collecting.gc(bench, None, steps_unused_s=week).steps == 1
    assert [row.reference for row in catalog.listing(bench.local, Kind.CACHE)] == [str(new)]
