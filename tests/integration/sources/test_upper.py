"""Uppers that the kernel made: what a real overlay shows equals what the model computes."""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import mount
from dsec_layers.model.content import Source
from dsec_layers.model.escaping import stored_entries, to_stored
from dsec_layers.model.merge import apply, apply_sources, fold
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.directory import walk
from dsec_layers.sources.upper import walk_upper
from tests.support.tars import contents
from tests.support.trees import Contents, materialise, trees

pytestmark = pytest.mark.root

quick = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True)
class Overlay:
    """A mounted overlay and its directories."""

    root: Path
    upper: Path
    lower: Path


@contextlib.contextmanager
def overlay(folder: Path, *, writable: bool = True) -> Iterator[Overlay]:
    """Mount `folder`/upper over `folder`/lower, which are made when they are not there."""
    lower, upper, work, root = (folder / name for name in ("lower", "upper", "work", "root"))
    for path in (lower, upper, work, root):
        path.mkdir(exist_ok=True)
    if writable:
        mount.mount_overlay(root, [lower], upper=upper, work=work)
    else:
        mount.mount_overlay(root, [upper, lower])
    try:
        yield Overlay(root, upper, lower)
    finally:
        mount.unmount(root)


def fresh(folder: Path) -> Path:
    path = folder / str(len(list(folder.iterdir())))
    path.mkdir()
    return path


def write(root: Path, name: str, data: bytes = b"x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def entries(upper: Path) -> dict[bytes, Entry]:
    return walk_upper(upper).tree.by_path()


def without_times(tree: Tree) -> Tree:
    return Tree.of(msgspec.structs.replace(entry, mtime_ns=0) for entry in tree)


def test_removing_and_making_again_is_opaque(tmp_path: Path) -> None:
    write(tmp_path / "lower", "a1/old")
    with overlay(tmp_path) as mounted:
        shutil.rmtree(mounted.root / "a1")
        (mounted.root / "a1").mkdir()
        shown = walk(mounted.root, mounted=True)
    found = entries(tmp_path / "upper")
    assert found[b"a1"].opaque
    assert found[b"a1"].xattrs == ()
    assert [entry.path for entry in shown.tree] == [b"", b"a1"]


def test_removing_is_a_whiteout_and_all_of_them_are_entries_of_their_own(tmp_path: Path) -> None:
    """The kernel links many whiteouts to one inode."""
    for name in "abc":
        write(tmp_path / "lower", name)
    with overlay(tmp_path) as mounted:
        for name in "abc":
            (mounted.root / name).unlink()
    found = entries(tmp_path / "upper")
    for path in (b"a", b"b", b"c"):
        assert found[path] == Entry(path=path, kind=EntryKind.WHITEOUT)


Change = Callable[[Path], None]


def to_file(path: Path) -> None:
    remove(path)
    path.write_bytes(b"new")


def to_symlink(path: Path) -> None:
    remove(path)
    path.symlink_to("x")


def to_directory(path: Path) -> None:
    remove(path)
    path.mkdir()
    (path / "new").write_bytes(b"new")


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def relink(path: Path) -> None:
    os.link(path, path.parent / "linked", follow_symlinks=False)


CHANGES: list[Change] = [to_file, to_symlink, to_directory, remove]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("before", [to_file, to_symlink, to_directory])
def test_replacements_of_all_kinds(tmp_path: Path, before: Change, change: Change) -> None:
    write(tmp_path / "lower", "d")
    before(tmp_path / "lower" / "d")
    write(tmp_path / "lower", "x/y")
    with overlay(tmp_path) as mounted:
        change(mounted.root / "d")
        shown = walk(mounted.root, mounted=True)
    stacked = apply_sources(walk(tmp_path / "lower"), walk_upper(tmp_path / "upper"))
    assert stacked.tree == shown.tree
    assert set(stacked.contents) == set(shown.contents)


@pytest.mark.parametrize("make", [to_file, to_symlink, lambda path: os.mkfifo(remade(path))])
def test_a_hard_link_to_a_lower_file_is_one_inode(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(write(tmp_path / "lower", "a"))
    with overlay(tmp_path) as mounted:
        relink(mounted.root / "a")
        shown = walk(mounted.root, mounted=True).tree
    stacked = apply(walk(tmp_path / "lower").tree, walk_upper(tmp_path / "upper").tree)
    assert stacked == shown
    assert [entry.link_group for entry in stacked] == [0, 1, 1]


def remade(path: Path) -> Path:
    path.unlink()
    return path


def test_a_change_of_owner_keeps_what_the_kernel_keeps(tmp_path: Path) -> None:
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    path = write(tmp_path / "lower", "f")
    os.setxattr(path, "user.a", b"1")
    os.utime(path, ns=(5, 5))
    with overlay(tmp_path) as mounted:
        os.chown(mounted.root / "f", 7, 8)
        os.setxattr(mounted.root / "f", "security.capability", capability)
    found = entries(tmp_path / "upper")[b"f"]
    assert (found.uid, found.gid, found.mtime_ns) == (7, 8, 5)
    assert found.xattrs == ((b"security.capability", capability), (b"user.a", b"1"))


def test_attributes_like_those_of_overlayfs_are_content(tmp_path: Path) -> None:
    with overlay(tmp_path) as mounted:
        (mounted.root / "d").mkdir()
        os.setxattr(mounted.root / "d", "trusted.overlay.opaque", b"y")
        os.setxattr(mounted.root / "d", "trusted.overlay.redirect", b"/x")
        shown = walk(mounted.root, mounted=True).tree
    found = entries(tmp_path / "upper")[b"d"]
    assert not found.opaque
    assert found.xattrs == (
        (b"trusted.overlay.opaque", b"y"),
        (b"trusted.overlay.redirect", b"/x"),
    )
    assert found in shown.entries


def test_a_null_device_of_a_layer_survives_copy_up(tmp_path: Path) -> None:
    """It lies in the lower layer in its escaped form and is touched through the mount."""
    null = Entry(path=b"null", kind=EntryKind.CHAR, mode=0o640)
    store(to_stored(null), b"", tmp_path / "lower")
    with overlay(tmp_path) as mounted:
        os.chown(mounted.root / "null", 5, 5)
        shown = walk(mounted.root, mounted=True).tree.by_path()[b"null"]
    for found in (shown, entries(tmp_path / "upper")[b"null"]):
        assert (found.kind, found.mode, found.uid, found.xattrs) == (
            EntryKind.CHAR,
            0o640,
            5,
            (),
        )


@pytest.mark.parametrize("mark", ["trusted.overlay.redirect", "trusted.overlay.metacopy"])
def test_an_upper_that_refers_to_its_lower_layers_is_refused(tmp_path: Path, mark: str) -> None:
    os.setxattr(write(tmp_path, "f"), mark, b"x")
    with pytest.raises(InvalidInputError, match="another layer"):
        walk_upper(tmp_path)


def test_excluded_paths_of_an_upper(tmp_path: Path) -> None:
    write(tmp_path, "etc/resolv.conf")
    write(tmp_path, "etc/hosts")
    walked = walk_upper(tmp_path, exclude={b"etc/resolv.conf"})
    assert [entry.path for entry in walked.tree] == [b"", b"etc", b"etc/hosts"]


def store(entry: Entry, data: bytes, root: Path) -> None:
    """Put one entry in its stored form on a disk."""
    root.mkdir(exist_ok=True)
    materialise(Tree.of([entry]), {entry.path: data}, root)


def store_diff(tree: Tree, data: Contents, upper: Path) -> None:
    """Put a diff on a disk in the form that the kernel understands."""
    upper.mkdir()
    stored = Tree.of(stored_entries(tree))
    empty = {entry.path: b"" for entry in stored if entry.kind is EntryKind.FILE}
    materialise(stored, {**empty, **data}, upper)


@quick
@given(trees(changes=False, max_inodes=8), st.data())
def test_a_real_overlay_shows_what_the_model_computes(
    tmp_path: Path, lower: tuple[Tree, Contents], data: st.DataObject
) -> None:
    """Random trees as lower and upper directory of a kernel mount."""
    upper = data.draw(changes_of(lower[0]))
    folder = fresh(tmp_path)
    store_diff(*lower, folder / "lower")
    store_diff(*upper, folder / "upper")
    below, diff = walk_upper(folder / "lower"), walk_upper(folder / "upper")
    assert below.tree == undigested(lower[0])
    assert diff.tree == undigested(upper[0])
    with overlay(folder, writable=False) as mounted:
        shown = walk(mounted.root, mounted=True)
        assert same(shown, apply_sources(below, diff))


def same(left: Source, right: Source) -> bool:
    assert left.tree == right.tree
    assert contents(left) == contents(right)
    return True


def undigested(tree: Tree) -> Tree:
    return Tree.of(msgspec.structs.replace(entry, digest=b"") for entry in tree)


@st.composite
def changes_of(draw: st.DrawFn, lower: Tree) -> tuple[Tree, Contents]:
    """A random diff, moved onto some of the lower's paths so that the two meet."""
    tree, data = draw(trees(max_inodes=8))
    tops = [entry.path for entry in tree if entry.path and b"/" not in entry.path]
    places = [entry.path for entry in lower if entry.path]
    if not places or not tops:
        return tree, data
    known = lower.by_path()
    moved = {top: draw(st.sampled_from(places)) for top in tops}
    out: dict[bytes, Entry] = {b"": tree.entries[0]}
    out_data: Contents = {}
    for entry in tree.entries[1:]:
        top, slash, rest = entry.path.partition(b"/")
        path = moved[top] + slash + rest
        if path in out or len(path) > 3800:
            continue
        parents = [path[:at] for at in range(len(path)) if path[at : at + 1] == b"/"]
        if any(parent in out and out[parent].kind is not EntryKind.DIRECTORY for parent in parents):
            continue
        for parent in parents:
            like = known.get(parent)
            mode = like.mode if like and like.kind is EntryKind.DIRECTORY else 0o755
            out.setdefault(parent, Entry(path=parent, kind=EntryKind.DIRECTORY, mode=mode))
        out[path] = msgspec.structs.replace(entry, path=path)
        if entry.kind is EntryKind.FILE:
            out_data[path] = data[entry.path]
    return Tree.of(out.values()), out_data


def test_two_uppers_folded_show_what_both_show(tmp_path: Path) -> None:
    """A step over a step, folded to one layer over the same base."""
    for name in ("keep", "d/old", "gone", "e/f/g"):
        write(tmp_path / "one" / "lower", name)
    base = walk(tmp_path / "one" / "lower").tree
    with overlay(tmp_path / "one") as mounted:
        shutil.rmtree(mounted.root / "d")
        (mounted.root / "gone").unlink()
        write(mounted.root, "e/f/new")
        first = walk_upper(mounted.upper).tree
        shutil.copytree(mounted.root, tmp_path / "two" / "lower")
    with overlay(tmp_path / "two") as mounted:
        write(mounted.root, "d/new")
        shutil.rmtree(mounted.root / "e" / "f")
        to_symlink(mounted.root / "keep")
        write(mounted.root, "gone/again")
        second = walk_upper(mounted.upper).tree
        shown = walk(mounted.root, mounted=True).tree
    folded = fold(first, second)
    assert without_times(apply(base, folded)) == without_times(shown)
    assert without_times(apply(apply(base, first), second)) == without_times(shown)


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("writable", [False, True])
def test_whiteouts_of_nothing_are_not_listed(tmp_path: Path, opaque: bool, writable: bool) -> None:
    """A layer may lie over another base than the one it was built on."""
    layer = Tree.of(
        [
            Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755, opaque=opaque),
            Entry(path=b"d/file", kind=EntryKind.FIFO),
            Entry(path=b"d/nothing", kind=EntryKind.WHITEOUT),
        ]
    )
    store_diff(layer, {}, tmp_path / "lower")
    with overlay(tmp_path, writable=writable) as mounted:
        assert os.listdir(mounted.root / "d") == ["file"]


def test_devices_made_in_a_sandbox_are_content(tmp_path: Path) -> None:
    with overlay(tmp_path) as mounted:
        os.mknod(mounted.root / "c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    found = entries(tmp_path / "upper")[b"c"]
    assert (found.kind, found.major, found.minor) == (EntryKind.CHAR, 1, 3)
