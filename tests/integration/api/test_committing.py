"""Commits of real overlays: the environment shows afterwards what the sandbox showed."""

import contextlib
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dsec_layers.api import committing, composing, looking, mounting, publishing, verifying
from dsec_layers.api.committing import CommitOptions
from dsec_layers.builder.residuerules import choose
from dsec_layers.errors import BusyError, InvalidInputError
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.tree import EntryKind, Tree
from dsec_layers.sources.directory import walk
from tests.support.cli import BASE, Cli
from tests.support.packed import pack_files

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]
ENV = Reference.parse("env/e:v1")
NEW = Reference.parse("workspace/w:v2")
WORK = {
    "project/a": "a",
    "project/b": "b",
    "project/d/one": "1",
    "project/d/two": "2",
    "project/big": "x" * 300_000,
}


@pytest.fixture
def sandbox(cli: Cli) -> Iterator[Path]:
    """An environment of a base, a workspace and a toolkit, mounted."""
    cli.add("workspace/w:v1", WORK)
    cli.add("toolkit/t:v1", {"opt/t/tool": "tool", "opt/t/config": "config"})
    cli.compose(str(ENV), BASE, "workspace/w:v1", "toolkit/t:v1")
    target = cli.folder / "mnt"
    mounting.mount(cli.bench, ENV, target)
    yield target
    mounting.umount(cli.bench, target)


def plain(tree: Tree) -> dict[bytes, object]:
    """What is compared: all but the times of directories, which residue changes too."""
    return {
        entry.path: msgspec.structs.replace(entry, mtime_ns=0)
        if entry.kind is EntryKind.DIRECTORY
        else entry
        for entry in tree
    }


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def assert_shows(cli: Cli, shown: dict[bytes, object], data: dict[str, bytes], *parts: str) -> None:
    """The environment of these parts shows these entries and contents, and is sound."""
    name = Reference.parse("env/after:v1")
    composing.compose(cli.bench, [Reference.parse(part) for part in parts], name)
    with mounting.mounted(cli.bench, name, read_only=True) as rootfs:
        after = plain(walk(rootfs.target, mounted=True).tree)
        assert after == shown
        assert contents(rootfs.target) == data
    verifying.verify(cli.bench, name).raise_for_problems()


def change(root: Path) -> None:
    """One of each kind of change."""
    (root / "project/a").write_text("changed")
    (root / "project/b").unlink()
    shutil.rmtree(root / "project/d")
    (root / "project/d").mkdir()
    (root / "project/d/three").write_text("3")
    (root / "project/big").chmod(0o600)
    (root / "etc/group").rename(root / "etc/moved")
    (root / "new").write_text("new")
    os.link(root / "new", root / "project/linked")
    (root / "project/pointer").symlink_to("../new")
    os.setxattr(root / "new", "user.note", b"x")
    os.chown(root / "etc/passwd", 5, 6)
    os.mkfifo(root / "project/fifo")
    shutil.rmtree(root / "root")
    (root / "root").write_text("a file now")


def test_a_workspace_takes_in_the_one_below(cli: Cli, sandbox: Path) -> None:
    change(sandbox)
    shown, data = plain(walk(sandbox, mounted=True).tree), contents(sandbox)
    done = committing.commit(cli.bench, sandbox, NEW)
    assert done.shadowed == ()
    assert done.dropped == ()
    assert_shows(cli, shown, data, BASE, str(NEW), "toolkit/t:v1")
    (config,) = looking.inspect(cli.bench, NEW).configs
    assert config.kind is Kind.WORKSPACE
    assert config.provenance.source == "commit"
    assert config.provenance.base == cli.bench.resolve(Reference.parse(BASE)).digest


def test_a_toolkit_holds_the_changes_alone(cli: Cli, sandbox: Path) -> None:
    change(sandbox)
    (sandbox / "opt/t/config").write_text("mine")
    (sandbox / "opt/t/tool").unlink()
    shown, data = plain(walk(sandbox, mounted=True).tree), contents(sandbox)
    committing.commit(cli.bench, sandbox, Reference.parse("toolkit/mine:v1"))
    parts = (BASE, "workspace/w:v1", "toolkit/t:v1", "toolkit/mine:v1")
    assert_shows(cli, shown, data, *parts)


def test_what_a_toolkit_hides_is_told(cli: Cli, sandbox: Path) -> None:
    (sandbox / "opt/t/config").write_text("mine")
    (sandbox / "opt/t/tool").unlink()
    (sandbox / "opt/t/beside").write_text("seen")
    done = committing.commit(cli.bench, sandbox, NEW)
    assert [(each.path, each.toolkit, each.removed) for each in done.shadowed] == [
        ("/opt/t/config", "toolkit/t", False),
        ("/opt/t/tool", "toolkit/t", True),
    ]
    tree = looking.tree(cli.bench, NEW).by_path()
    assert b"opt/t/beside" in tree


def test_residue(cli: Cli, sandbox: Path) -> None:
    (sandbox / "project/a").write_text("changed")
    shown, data = plain(walk(sandbox, mounted=True).tree), contents(sandbox)
    for name in ("root/.bash_history", "tmp/x/y", "project/.a.swp", "root/.cache/pip/z"):
        (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox / name).write_text("residue")
    (sandbox / "notes").write_text("of the task")
    options = CommitOptions(rules=choose(drop=["notes"]))
    done = committing.commit(cli.bench, sandbox, NEW, options)
    assert {each.path: each.rule for each in done.dropped} == {
        "/notes": "task",
        "/root/.bash_history": "shell-history",
        "/root/.cache": "caches",
        "/root/.cache/pip": "caches",
        "/root/.cache/pip/z": "caches",
        "/tmp/x": "temporary",
        "/tmp/x/y": "temporary",
        "/project/.a.swp": "editors",
    }
    assert_shows(cli, shown, data, BASE, str(NEW), "toolkit/t:v1")
    (config,) = looking.inspect(cli.bench, NEW).configs
    assert config.provenance.residue == done.residue
    assert sum(each.paths for each in done.residue.dropped) == 8


def test_a_dry_run_makes_nothing(cli: Cli, sandbox: Path) -> None:
    (sandbox / "tmp/x").write_text("residue")
    tags, blobs = cli.tags(), list(cli.bench.local.blobs())
    done = committing.commit(cli.bench, sandbox, NEW, CommitOptions(dry_run=True))
    assert [each.path for each in done.dropped] == ["/tmp/x"]
    assert done.layer is None
    assert (cli.tags(), list(cli.bench.local.blobs())) == (tags, blobs)


def test_an_upper_that_is_not_mounted(cli: Cli) -> None:
    target, upper = cli.folder / "mnt", cli.folder / "upper"
    base = Reference.parse(BASE)
    mounting.mount(cli.bench, base, target, upper=upper)
    (target / "new").write_text("new")
    (target / "etc/group").unlink()
    shown, data = plain(walk(target, mounted=True).tree), contents(target)
    mounting.umount(cli.bench, target)
    with pytest.raises(InvalidInputError, match="not known") as error:
        committing.commit(cli.bench, upper, NEW)
    assert "--base" in str(error.value.hint)
    done = committing.commit(cli.bench, upper, NEW, CommitOptions(base=base))
    assert_shows(cli, shown, data, BASE, str(NEW))
    assert done.layer is not None
    assert done.layer.entries == 4


@pytest.mark.parametrize("name", ["base/b:v1", "env/e:v2"])
def test_kinds_that_are_refused(cli: Cli, sandbox: Path, name: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        committing.commit(cli.bench, sandbox, Reference.parse(name))
    assert error.value.hint


def test_a_sandbox_that_never_rests(
    cli: Cli, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sandbox / "busy").write_text("0")
    count = 0
    original = publishing.packed

    def packed(*given: object, **named: object) -> object:
        nonlocal count
        count += 1
        made = original(*given, **named)  # type: ignore[arg-type]
        (sandbox / "busy").write_text(str(count))
        return made

    monkeypatch.setattr(committing, "packed", packed)
    with pytest.raises(BusyError, match="/busy"):
        committing.commit(cli.bench, sandbox, NEW)
    assert count > 1
    assert str(NEW) not in cli.tags()


def test_one_change_is_enough_to_read_again(
    cli: Cli, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sandbox / "project/a").write_text("first")
    done: list[bool] = []
    original = publishing.packed

    def packed(*given: object, **named: object) -> object:
        made = original(*given, **named)  # type: ignore[arg-type]
        if not done:
            (sandbox / "project/a").write_text("second")
        done.append(True)
        return made

    monkeypatch.setattr(committing, "packed", packed)
    committing.commit(cli.bench, sandbox, NEW)
    assert b"".join(looking.cat(cli.bench, NEW, "/project/a")) == b"second"


def test_the_command(cli: Cli, sandbox: Path) -> None:
    (sandbox / "project/a").write_text("changed")
    (sandbox / "tmp/x").write_text("residue")
    listed = cli("commit", sandbox, "-t", str(NEW), "--dry-run").splitlines()
    assert listed[1].split()[:2] == ["/tmp/x", "temporary"]
    made = cli("commit", sandbox, "-t", str(NEW))
    assert made.startswith(f"{NEW} sha256:")
    assert "left out by temporary: 1 paths" in made
    cli.fails(InvalidInputError, "commit", sandbox, "-t", "base/b:v1")
    cli.fails(InvalidInputError, "commit", sandbox, "-t", str(NEW), "--keep", "nonsense")


def test_modes_of_sockets_are_residue(cli: Cli, sandbox: Path) -> None:
    os.mknod(sandbox / "project/socket", 0o600 | stat.S_IFSOCK)
    done = committing.commit(cli.bench, sandbox, NEW)
    assert [each.rule for each in done.dropped] == ["sockets"]


def test_core_dumps_by_their_head(cli: Cli, sandbox: Path) -> None:
    head = b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00" + bytes(40)
    (sandbox / "project/core").write_bytes(head)
    (sandbox / "project/core.c").write_text("int main;")
    done = committing.commit(cli.bench, sandbox, NEW)
    assert [(each.path, each.rule) for each in done.dropped] == [("/project/core", "core-dumps")]


def test_a_foreign_overlay_over_our_layers(cli: Cli, sandbox: Path) -> None:
    """Only mountinfo tells; the journal does not know it."""
    upper, work, target = (cli.folder / name for name in ("u", "w", "m"))
    for folder in (upper, work, target):
        folder.mkdir()
    points = [path for path in (cli.home / "run/layers").iterdir() if path.is_dir()]
    lowers = ":".join(str(point) for point in points if "etc" in os.listdir(point))
    options = f"lowerdir={lowers}:{cli.home / 'run/empty'},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "o", "-o", options, target], check=True)
    try:
        (target / "new").write_text("new")
        done = committing.commit(cli.bench, target, NEW)
    finally:
        subprocess.run(["umount", target], check=True)
    assert done.base == cli.bench.resolve(Reference.parse(BASE)).digest
    assert b"new" in looking.tree(cli.bench, NEW).by_path()


PATHS = (
    "project/a",
    "project/d/one",
    "project/new",
    "project/d",
    "etc/group",
    "n/m/x",
    "etc",
    "opt/t/new",
)


def append(place: Path, _second: Path) -> None:
    with place.open("a") as file:
        file.write("more")


def remove(place: Path, _second: Path) -> None:
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def move(place: Path, second: Path) -> None:
    subprocess.run(["mv", "-T", place, second], check=True, stderr=subprocess.DEVNULL)


ACTIONS: list[Callable[[Path, Path], object]] = [
    lambda place, second: place.write_text(f"{place.name} {second.name}"),
    append,
    remove,
    lambda place, _: place.mkdir(),
    lambda place, _: place.chmod(0o750),
    lambda place, _: os.lchown(place, 7, 8),
    os.link,
    lambda place, second: place.symlink_to(second.name),
    move,
    lambda place, second: os.setxattr(place, "user.x", second.name.encode()),
]


def test_any_operations(cli: Cli, sandbox: Path) -> None:
    """Batches of random operations, each on what the last one left."""
    rng = random.Random(11)
    done = 0
    for _ in range(4):
        for _ in range(25):
            place, second = (sandbox / rng.choice(PATHS) for _ in range(2))
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                place.parent.mkdir(parents=True, exist_ok=True)
                rng.choice(ACTIONS)(place, second)
                done += 1
        shown, data = plain(walk(sandbox, mounted=True).tree), contents(sandbox)
        made = committing.commit(cli.bench, sandbox, NEW)
        assert made.shadowed == ()
        assert_shows(cli, shown, data, BASE, str(NEW), "toolkit/t:v1")
    assert done > 20


def noted(call: Callable[..., object], looked: list[object]) -> Callable[..., object]:
    """The same call, which writes down what it is asked for."""

    def noting(*given: object, **named: object) -> object:
        looked.append(given)
        return call(*given, **named)

    return noting


def test_one_file_over_many(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the upper is walked, and only the changed file is read."""
    files = {f"many/{number % 300}/{number}": b"" for number in range(60_000)}
    files |= {"many/0/0": b"before"}
    base = Reference.parse("base/many:v1")
    pack_files(cli.bench, base, files)
    target = cli.folder / "mnt"
    mounting.mount(cli.bench, base, target)
    try:
        (target / "many/0/0").write_text("after")
        looked: list[object] = []
        for name in ("scandir", "lstat"):
            monkeypatch.setattr(os, name, noted(getattr(os, name), looked))
        done = committing.commit(cli.bench, target, NEW)
        monkeypatch.undo()
    finally:
        mounting.umount(cli.bench, target)
    assert len(looked) < 200
    assert done.layer is not None
    assert (done.layer.entries, done.layer.files) == (4, 1)
    assert done.layer.device_bytes == 4096
