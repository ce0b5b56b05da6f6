"""Layers of OCI images over each other: markers, and what a layer takes from those below it."""

import itertools
import tarfile
from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.content import Source
from dsec_layers.model.merge import apply_sources
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.tars import (
    Member,
    archive,
    contents,
    directory,
    hard_link,
    member,
    read,
    symlink,
)

EMPTY = Source(Tree.of(()))


def layer(folder: Path, members: list[Member], lower: Source = EMPTY) -> Source:
    return read(archive(members), folder, oci=True, lower=lower)


def stacked(folder: Path, *layers: list[Member]) -> Source:
    whole = EMPTY
    for members in layers:
        whole = apply_sources(whole, layer(folder, members, whole))
    return whole


def paths(source: Source) -> list[bytes]:
    return [entry.path for entry in source.tree][1:]


def test_an_opaque_marker_alone_empties_the_directory(tmp_path: Path) -> None:
    lower = [directory("a", 0o700), member("a/b/foo")]
    source = stacked(tmp_path, lower, [member("a/.wh..wh..opq")])
    assert paths(source) == [b"a"]
    assert source.tree.by_path()[b"a"].mode == 0o700


SIBLINGS = [directory("a"), member("a/.wh..wh..opq"), member("a/new"), member("a/sub/deep")]


@pytest.mark.parametrize("order", list(itertools.permutations(SIBLINGS)), ids=lambda _: "")
def test_an_opaque_marker_hides_lower_layers_whatever_its_place(
    tmp_path: Path, order: tuple[Member, ...]
) -> None:
    lower = [member("a/old"), member("a/sub/old")]
    source = stacked(tmp_path, lower, list(order))
    assert paths(source) == [b"a", b"a/new", b"a/sub", b"a/sub/deep"]


def test_an_opaque_marker_at_the_root_hides_all(tmp_path: Path) -> None:
    source = stacked(tmp_path, [member("a/b")], [member(".wh..wh..opq"), member("c")])
    assert paths(source) == [b"c"]


@pytest.mark.parametrize("marker", ["a/.wh.b", "./a/.wh.b", "/a/.wh.b"])
def test_a_whiteout_removes_a_subtree_and_leaves_its_parent_as_it_was(
    tmp_path: Path, marker: str
) -> None:
    lower = [directory("a", 0o711), member("a/b/c"), member("a/b-")]
    source = stacked(tmp_path, lower, [member(marker)])
    assert paths(source) == [b"a", b"a/b-"]
    assert source.tree.by_path()[b"a"].mode == 0o711


@pytest.mark.parametrize("first", [0, 1])
def test_a_whiteout_beside_a_new_directory_makes_it_opaque(tmp_path: Path, first: int) -> None:
    """`rm -rf a1; mkdir a1`, as some builders write it; the order does not matter."""
    members = [member(".wh.a1"), member("a1/new")]
    ordered = members[first:] + members[:first]
    assert paths(stacked(tmp_path, [member("a1/old")], ordered)) == [b"a1", b"a1/new"]


def test_a_whiteout_beside_a_new_file_leaves_the_file(tmp_path: Path) -> None:
    source = stacked(tmp_path, [member("a/x")], [member("a", data=b"1"), member(".wh.a")])
    assert contents(source) == {b"a": b"1"}


def test_markers_become_whiteouts_and_opaque_directories_of_the_diff(tmp_path: Path) -> None:
    diff = layer(tmp_path, [member("d/.wh..wh..opq"), member("d/.wh.x"), member(".wh.y")])
    assert diff.tree == Tree.of(
        [
            Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755, opaque=True),
            Entry(path=b"d/x", kind=EntryKind.WHITEOUT),
            Entry(path=b"y", kind=EntryKind.WHITEOUT),
        ]
    )


def test_bookkeeping_of_aufs_is_dropped(tmp_path: Path) -> None:
    members = [directory(".wh..wh.plnk"), member(".wh..wh.plnk/1.2"), member(".wh..wh.aufs")]
    assert paths(layer(tmp_path, [*members, member("a")])) == [b"a"]


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "a/.wh..."])
def test_whiteouts_of_nothing_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="whiteout"):
        layer(tmp_path, [member(name)])


def test_names_like_markers_are_names(tmp_path: Path) -> None:
    assert paths(layer(tmp_path, [member(".wha"), member("x.wh.b"), member(".wh")])) == [
        b".wh",
        b".wha",
        b"x.wh.b",
    ]


@pytest.mark.parametrize("upper", [member("d", data=b"1"), symlink("d", "x")])
def test_no_directory_over_a_directory(tmp_path: Path, upper: Member) -> None:
    source = stacked(tmp_path, [member("d/f"), member("x/y")], [upper])
    assert paths(source) == [b"d", b"x", b"x/y"]


@pytest.mark.parametrize("lower", [member("d", data=b"1"), symlink("d", "x")])
def test_a_directory_over_no_directory(tmp_path: Path, lower: Member) -> None:
    source = stacked(tmp_path, [lower, member("x/y")], [directory("d"), member("d/f")])
    assert paths(source) == [b"d", b"d/f", b"x", b"x/y"]


def test_parents_that_a_layer_lacks_keep_their_attributes(tmp_path: Path) -> None:
    lower = [directory(".", 0o711), directory("tmp", 0o1777), directory("tmp/x", 0o700)]
    entries = stacked(tmp_path, lower, [member("tmp/x/y")]).tree.by_path()
    assert [entries[path].mode for path in (b"", b"tmp", b"tmp/x")] == [0o711, 0o1777, 0o700]


def test_symlinks_of_lower_layers_are_followed(tmp_path: Path) -> None:
    lower = [directory("usr/lib"), symlink("lib", "usr/lib")]
    source = stacked(tmp_path, lower, [member("lib/x"), member("lib/.wh.y")])
    assert source.tree.by_path()[b"lib"].kind is EntryKind.SYMLINK
    assert b"usr/lib/x" in paths(source)


def test_a_whiteout_goes_through_symlinks_of_lower_layers(tmp_path: Path) -> None:
    lower = [member("usr/lib/y"), symlink("lib", "usr/lib")]
    assert b"usr/lib/y" not in paths(stacked(tmp_path, lower, [member("lib/.wh.y")]))


def test_what_a_layer_removes_is_not_followed(tmp_path: Path) -> None:
    lower = [directory("usr/lib"), symlink("lib", "usr/lib")]
    source = stacked(tmp_path, lower, [member(".wh.lib"), member("lib/x")])
    assert paths(source) == [b"lib", b"lib/x", b"usr", b"usr/lib"]


TARGETS: list[Member] = [
    member("d/a", data=b"data", mode=0o755),
    symlink("d/a", "target"),
    member("d/a", tarfile.FIFOTYPE),
    member("d/a", tarfile.CHRTYPE, device=(1, 3)),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[0].type.decode())
def test_a_hard_link_to_a_lower_layer_shares_inode_and_data(tmp_path: Path, target: Member) -> None:
    below = stacked(tmp_path, [target])
    links = [hard_link("b", "d/a"), hard_link("c", "/d/a"), hard_link("e", "b")]
    source = apply_sources(below, layer(tmp_path, links, below))
    entries = source.tree.by_path()
    assert [entries[path].link_group for path in (b"b", b"c", b"d/a", b"e")] == [1, 1, 1, 1]
    places = {source.contents[path] for path in source.contents}
    assert places == set(below.contents.values()), "no new data"


def test_a_link_survives_the_removal_of_its_target(tmp_path: Path) -> None:
    lower = [member("d/a", data=b"data")]
    for marker in ("d/.wh.a", ".wh.d", "d/.wh..wh..opq"):
        source = stacked(tmp_path, lower, [hard_link("b", "d/a"), member(marker)])
        assert contents(source) == {b"b": b"data"}
        assert source.tree.by_path()[b"b"].link_group == 0


def test_a_link_survives_the_replacement_of_its_target(tmp_path: Path) -> None:
    upper = [hard_link("b", "a"), member("a", data=b"new")]
    source = stacked(tmp_path, [member("a", data=b"old")], upper)
    assert contents(source) == {b"a": b"new", b"b": b"old"}


def test_a_link_to_what_a_layer_already_removed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'b'"):
        stacked(tmp_path, [member("a")], [member(".wh.a"), hard_link("b", "a")])


def test_groups_of_lower_layers_are_not_joined_by_number(tmp_path: Path) -> None:
    lower = [member("a"), hard_link("b", "a"), member("p"), hard_link("q", "p")]
    source = stacked(tmp_path, lower, [member("x"), hard_link("y", "x"), hard_link("z", "p")])
    groups = {entry.path: entry.link_group for entry in source.tree if entry.path}
    assert groups == {b"a": 1, b"b": 1, b"p": 2, b"z": 2, b"q": 0, b"x": 3, b"y": 3}


def test_200_layers(tmp_path: Path) -> None:
    layers = [
        [member(f"own/{n}", data=b"%d" % n), member("shared", data=b"%d" % n), member(f".wh.{n}")]
        for n in range(200)
    ]
    source = stacked(tmp_path, [member(str(n)) for n in range(200)], *layers)
    assert len(source.tree) == 1 + 1 + 200 + 1
    assert contents(source)[b"shared"] == b"199"
    assert contents(source)[b"own/7"] == b"7"


def test_a_layer_without_end_mark_is_whole(tmp_path: Path) -> None:
    """Some writers leave it out, and the digest of a layer tells whether it is whole."""
    data = archive([member("a", data=b"x" * 512)])[:1024]
    assert paths(read(data, tmp_path, oci=True)) == [b"a"]
