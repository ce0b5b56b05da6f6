"""Upgrades over stores of made-up layers: what moves, what does not, and who is told."""

from pathlib import Path

import pytest

from dsec_layers.api import keys, signatures, upgrading
from dsec_layers.api.trust import Trust
from dsec_layers.api.upgrading import Status, Upgraded, UpgradeOptions
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError, SignatureError
from dsec_layers.model.environment import REFERENCE_KEY
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.registry.directory import DirectoryStore
from tests.support.packed import pack_files
from tests.support.stores import put_environment, put_layer

NEW = Reference.parse("toolkit/x:v2")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """Environments a, b and plain; the last one has no toolkit."""
    made = Workbench(tmp_path / "home")
    parts = {name: layer(made, name) for name in ("base/b:1", "toolkit/x:v1", "toolkit/y:v1")}
    for name in ("a", "b"):
        put_environment(
            made.local,
            Reference.parse(f"env/swe/{name}:v1"),
            [(Reference.parse(key).kind, key, found) for key, found in parts.items()],
        )
    put_environment(
        made.local,
        Reference.parse("env/plain:v1"),
        [(Kind.BASE, "base/b:1", parts["base/b:1"])],
    )
    layer(made, str(NEW))
    return made


def layer(bench: Workbench, name: str) -> Descriptor:
    return put_layer(bench.local, Reference.parse(name), [name.encode()])


def names(bench: Workbench, reference: str) -> list[str]:
    environment = bench.environment(bench.local.resolve(Reference.parse(reference)))
    return [each.annotations[REFERENCE_KEY] for each in environment.layers]


def statuses(rows: tuple[Upgraded, ...]) -> dict[str, Status]:
    return {row.environment: row.status for row in rows}


def test_a_pattern_takes_those_that_have_the_layer(bench: Workbench) -> None:
    rows = upgrading.upgrade(bench, NEW, ["env/*"])
    assert statuses(rows) == {"env/swe/a:v1": Status.UPGRADED, "env/swe/b:v1": Status.UPGRADED}
    assert names(bench, "env/swe/a:v1") == ["base/b:1", "toolkit/x:v2", "toolkit/y:v1"]
    for row in rows:
        at = bench.local.resolve(Reference.parse(row.environment))
        assert at.digest == row.after != row.before
    again = upgrading.upgrade(bench, NEW, ["env/swe/*"])
    assert {row.status for row in again} == {Status.UNCHANGED}


@pytest.mark.parametrize("remote", [False, True])
def test_what_is_not_signed_is_neither_put_in_nor_upgraded(
    bench: Workbench, tmp_path: Path, remote: bool
) -> None:
    pair = keys.generate(tmp_path / "release")
    key = keys.load_private(Path(pair.private), lambda: None)
    bench.trust = Trust.of([Path(pair.public)])
    options = UpgradeOptions(url=bench.local.url if remote else None)
    with pytest.raises(SignatureError, match="has no signature"):
        upgrading.upgrade(bench, NEW, ["env/*"], options)
    signatures.sign(bench, NEW, key)
    rows = upgrading.upgrade(bench, NEW, ["env/*"], options)
    assert statuses(rows) == {"env/swe/a:v1": Status.ERROR, "env/swe/b:v1": Status.ERROR}
    assert names(bench, "env/swe/a:v1") == ["base/b:1", "toolkit/x:v1", "toolkit/y:v1"]
    signatures.sign(bench, Reference.parse("env/swe/a:v1"), key)
    rows = upgrading.upgrade(bench, NEW, ["env/swe/a:v1"], options)
    assert statuses(rows) == {"env/swe/a:v1": Status.UPGRADED}


def test_a_named_environment_without_the_layer_is_an_error_and_the_others_go_on(
    bench: Workbench,
) -> None:
    done: list[tuple[int, int]] = []
    rows = upgrading.upgrade(
        bench,
        NEW,
        ["env/plain:v1", "env/nowhere:v1", "env/swe/a:v1", "env/swe/a*"],
        on_done=lambda *each: done.append(each),
    )
    assert [row.status for row in rows] == [Status.ERROR, Status.ERROR, Status.UPGRADED]
    assert "no layer of toolkit/x" in rows[0].reason
    assert "env/nowhere:v1" in rows[1].reason
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_a_tag_of_its_own(bench: Workbench) -> None:
    before = bench.local.resolve(Reference.parse("env/swe/a:v1"))
    options = UpgradeOptions(to_tag="v2")
    (row,) = upgrading.upgrade(bench, NEW, ["env/swe/a:v1"], options)
    assert (row.target, row.status) == ("env/swe/a:v2", Status.UPGRADED)
    assert bench.local.resolve(Reference.parse("env/swe/a:v1")) == before
    assert names(bench, "env/swe/a:v2")[1] == "toolkit/x:v2"
    (row,) = upgrading.upgrade(bench, NEW, ["env/swe/a:v1"], options)
    assert row.status is Status.UNCHANGED
    bench.local.tag(Reference.parse("env/swe/a:v2"), before)
    (row,) = upgrading.upgrade(bench, NEW, ["env/swe/a:v1"], options)
    assert row.status is Status.CONFLICT
    assert bench.local.resolve(Reference.parse("env/swe/a:v2")) == before


def test_a_tag_that_moves_meanwhile_is_a_conflict(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = bench.local.resolve(Reference.parse("env/plain:v1"))
    put = DirectoryStore.put

    def put_and_move(store: DirectoryStore, *given: object, **named: object) -> bool:
        if Path(store.root / "refs/env/swe/a/@v1.json").exists():
            store.tag(Reference.parse("env/swe/a:v1"), moved)
        return put(store, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectoryStore, "put", put_and_move)
    rows = upgrading.upgrade(bench, NEW, ["env/swe/*"])
    assert statuses(rows) == {"env/swe/a:v1": Status.CONFLICT, "env/swe/b:v1": Status.UPGRADED}
    assert bench.local.resolve(Reference.parse("env/swe/a:v1")) == moved


def test_a_dry_run_writes_nothing(bench: Workbench) -> None:
    blobs, tags = list(bench.local.blobs()), list(bench.local.tags())
    (row,) = upgrading.upgrade(bench, NEW, ["env/swe/a:v1"], UpgradeOptions(dry_run=True))
    assert row.status is Status.UPGRADED
    assert (list(bench.local.blobs()), list(bench.local.tags())) == (blobs, tags)
    (made,) = upgrading.upgrade(bench, NEW, ["env/swe/a:v1"])
    assert made.after == row.after


def test_in_another_store(bench: Workbench, tmp_path: Path) -> None:
    other = Workbench(tmp_path / "other")
    (row,) = upgrading.upgrade(other, NEW, ["env/swe/a:v1"], UpgradeOptions(url=bench.local.url))
    assert row.status is Status.UPGRADED
    assert names(bench, "env/swe/a:v1")[1] == "toolkit/x:v2"
    with pytest.raises(NotFoundError):
        upgrading.upgrade(other, NEW, ["env/swe/a:v1"])


def test_the_run_configuration_is_merged_anew(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    for name, path in (("base/b:1", "/bin"), ("toolkit/x:v1", "/one"), ("toolkit/x:v2", "/two")):
        run = RunConfig(env={"PATH": path})
        pack_files(bench, Reference.parse(name), {"f": name.encode()}, run=run)
    parts = [Reference.parse(name) for name in ("base/b:1", "toolkit/x:v1")]
    at = [(each.kind, str(each), bench.local.resolve(each)) for each in parts]
    put_environment(bench.local, Reference.parse("env/e:1"), at)
    (row,) = upgrading.upgrade(bench, NEW, ["env/e:1"], UpgradeOptions(check=True))
    assert row.errors == 0
    assert bench.stack(Reference.parse("env/e:1")).run.env == {"PATH": "/two:/bin"}


def test_strict_leaves_out_what_the_check_refuses(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    files = {"base/b:1": {"d/f": b""}, "toolkit/x:v1": {"t": b""}, "toolkit/x:v2": {"d": b"file"}}
    for name, each in files.items():
        pack_files(bench, Reference.parse(name), each)
    parts = [Reference.parse(name) for name in ("base/b:1", "toolkit/x:v1")]
    at = [(each.kind, str(each), bench.local.resolve(each)) for each in parts]
    before = put_environment(bench.local, Reference.parse("env/e:1"), at)
    (row,) = upgrading.upgrade(bench, NEW, ["env/e:1"], UpgradeOptions(strict=True))
    assert row.status is Status.ERROR
    assert "/d" in row.reason
    assert bench.local.resolve(Reference.parse("env/e:1")) == before


@pytest.mark.parametrize(
    ("layer", "environments", "error"),
    [
        ("env/swe/a:v1", ["env/swe/a:v1"], InvalidInputError),
        ("toolkit/none:v1", ["env/swe/a:v1"], NotFoundError),
        ("toolkit/x:v2", ["env/none/*"], NotFoundError),
        ("toolkit/x:v2", ["base/b:1"], InvalidInputError),
    ],
)
def test_what_is_refused_as_a_whole(
    bench: Workbench, layer: str, environments: list[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        upgrading.upgrade(bench, Reference.parse(layer), environments)


def test_two_layers_of_the_repository(bench: Workbench) -> None:
    parts = [
        (Reference.parse(name).kind, name, bench.local.resolve(Reference.parse(name)))
        for name in ("base/b:1", "toolkit/x:v1", "toolkit/x:v2")
    ]
    put_environment(bench.local, Reference.parse("env/two:v1"), parts)
    (row,) = upgrading.upgrade(bench, NEW, ["env/two:v1"])
    assert row.status is Status.ERROR
    assert "2 layers of toolkit/x" in row.reason
