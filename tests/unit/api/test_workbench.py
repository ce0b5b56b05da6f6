"""What references mean over one local store and further ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.shaper import Counters, Line, ShapedStore
from dsec_layers.api import composing, looking, moving
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import (
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from dsec_layers.model.manifest import PACK_TYPE, Provenance
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.registry.directory import DirectoryStore
from tests.support.packed import pack_files

BASE, WORK = Reference.parse("base/b:1"), Reference.parse("workspace/w:1")
TOOL, ENV = Reference.parse("toolkit/t:1"), Reference.parse("env/e:1")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A base, a workspace on it, and a toolkit on the workspace."""
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"a": b"base", "dir/b": b"b"}, run=RunConfig(env={"A": "1", "B": "1"}))
    pack_files(made, WORK, {"a": b"work"}, base=made.resolve(BASE), run=RunConfig(env={"B": "2"}))
    pack_files(made, TOOL, {"t": b"tool"}, base=made.resolve(WORK), run=RunConfig(cmd=("t",)))
    return made


@pytest.fixture
def remote(bench: Workbench, tmp_path: Path) -> str:
    """The URL of a store that has all of it."""
    url = f"dir://{tmp_path}/remote"
    composing.compose(bench, [BASE, WORK, TOOL], ENV)
    for reference in (BASE, WORK, TOOL, ENV):
        moving.push(bench, reference, url)
    return url


def kinds(bench: Workbench, reference: Reference) -> list[Kind]:
    return [layer.config.kind for layer in bench.stack(reference).layers]


def test_a_layer_stands_on_what_it_was_built_on(bench: Workbench) -> None:
    assert kinds(bench, BASE) == [Kind.BASE]
    assert kinds(bench, WORK) == [Kind.BASE, Kind.WORKSPACE]
    assert kinds(bench, TOOL) == [Kind.BASE, Kind.WORKSPACE, Kind.TOOLKIT]
    run = bench.stack(TOOL).run
    assert run.env == {"A": "1", "B": "2"}
    assert run.cmd == ("t",)


def test_an_environment_has_the_layers_that_it_lists(bench: Workbench) -> None:
    row = composing.compose(bench, [TOOL, BASE], ENV)
    assert kinds(bench, ENV) == [Kind.BASE, Kind.TOOLKIT]
    assert [layer.partition("@")[0] for layer in row.layers] == [str(BASE), str(TOOL)]
    assert bench.stack(ENV).run.env == {"A": "1", "B": "1"}


def test_a_base_that_is_missing_is_named(bench: Workbench) -> None:
    digest = bench.resolve(BASE).digest
    bench.local.delete(bench.resolve(BASE))
    with pytest.raises(NotFoundError, match=digest) as caught:
        bench.stack(WORK)
    assert "pull it" in (caught.value.hint or "")


def test_layers_that_stand_on_themselves(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No digest can name itself, but a store that lies can give such layers."""
    looped = bench.layer(bench.resolve(WORK))
    monkeypatch.setattr(Workbench, "layer", lambda *_: looped)
    with pytest.raises(CorruptError, match="more than 100 layers"):
        bench.stack(WORK)


def test_a_further_store_is_asked_after_the_local_one(
    bench: Workbench, remote: str, tmp_path: Path
) -> None:
    other = Workbench(tmp_path / "other", [f"dir://{tmp_path}/home/store", remote])
    bench.local.untag(ENV)
    assert other.resolve(ENV).digest == Workbench(tmp_path / "o", [remote]).resolve(ENV).digest
    assert [reference for reference, _ in other.local.tags()] == [ENV], "its documents are here now"
    assert not [blob for blob in other.local.blobs() if blob.media_type == PACK_TYPE]
    assert len(other.stack(ENV).layers) == 3
    other.check_packs(other.stack(ENV).layers)
    assert b"".join(looking.cat(other, ENV, "/a")) == b"work"
    alone = Workbench(tmp_path / "other")
    with pytest.raises(NotFoundError, match="not in the local store"):
        alone.check_packs(alone.stack(ENV).layers)


def test_what_no_store_has(bench: Workbench, remote: str) -> None:
    with pytest.raises(NotFoundError, match=r"there is no base/x:latest here$"):
        bench.resolve(Reference.parse("base/x"))
    with pytest.raises(NotFoundError, match=f"here nor in {remote}"):
        Workbench(bench.home.root, [remote]).resolve(Reference.parse("base/x"))


def test_a_store_that_fails_is_no_missing_layer(bench: Workbench, tmp_path: Path) -> None:
    other = Workbench(tmp_path / "other", [f"dir://{tmp_path}/nowhere"])
    with pytest.raises(StoreError):
        other.resolve(BASE)
    assert Workbench(bench.home.root, [f"dir://{tmp_path}/nowhere"]).resolve(BASE)


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    Workbench(tmp_path / "home", ["dir:///nowhere"])
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("parts", "reference", "said"),
    [
        ([BASE], BASE, "is not an environment"),
        ([ENV], ENV, "not of environments"),
        ([WORK], ENV, "exactly one base, got 0"),
        ([BASE, BASE], ENV, "exactly one base, got 2"),
        ([BASE, TOOL, TOOL], ENV, "given twice"),
        ([BASE, WORK, WORK], ENV, "at most one workspace"),
        ([], ENV, "exactly one base"),
    ],
)
def test_what_cannot_be_composed(
    bench: Workbench, parts: list[Reference], reference: Reference, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        composing.compose(bench, parts, reference)
    assert not list(bench.local.tags(Kind.ENV))


def test_composing_twice_gives_the_same_digest(bench: Workbench) -> None:
    one = composing.compose(bench, [BASE, WORK, TOOL], ENV)
    other = composing.compose(bench, [TOOL, WORK, BASE], Reference.parse("env/other"))
    assert one.digest == other.digest
    assert one.stored_bytes > 0
    assert one.entries == sum(
        bench.layer(bench.resolve(each)).config.sizes.entries for each in (BASE, WORK, TOOL)
    )


def test_a_pull_takes_the_first_store_that_has_it(
    bench: Workbench, remote: str, tmp_path: Path
) -> None:
    empty = f"dir://{tmp_path}/empty"
    moving.push(bench, BASE, empty)
    other = Workbench(tmp_path / "other", [empty, remote])
    assert moving.pull(other, WORK).store == remote
    with pytest.raises(NotFoundError, match="there is no base/x"):
        moving.pull(other, Reference.parse("base/x"))
    with pytest.raises(InvalidInputError, match="no store"):
        moving.pull(Workbench(tmp_path / "third"), BASE)


def test_provenance_survives(bench: Workbench) -> None:
    (config,) = looking.inspect(bench, WORK).configs
    assert config.provenance == Provenance(source="build", base=bench.resolve(BASE).digest)


def test_threads_that_start_together_fetch_once(remote: str, tmp_path: Path) -> None:
    counters = Counters()
    far = Workbench(tmp_path / "far", [remote])
    shaped = ShapedStore(remote, DirectoryStore.open(tmp_path / "remote"), Line(0, 1e12, counters))
    vars(far)["remotes"] = (shaped,)
    once = Workbench(tmp_path / "once", [remote])
    vars(once)["remotes"] = (shaped,)
    once.stack(ENV)
    alone = counters.requests
    with ThreadPoolExecutor(8) as pool:
        digests = set(pool.map(lambda _: far.stack(ENV).descriptor.digest, range(8)))
    assert digests == {once.resolve(ENV).digest}
    assert counters.requests == 2 * alone
    counters.close()
