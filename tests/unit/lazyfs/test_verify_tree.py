from typing import Any

import pytest
from msgspec.structs import replace

from dsec_layers.lazyfs.verify_tree import first_difference
from dsec_layers.model.tree import Entry, EntryKind, Tree

FILE = Entry(path=b"d/f", kind=EntryKind.FILE, mode=0o644, size=3, digest=b"x" * 32)
LINK = Entry(path=b"l", kind=EntryKind.SYMLINK, target=b"d/f")
DEVICE = Entry(path=b"n", kind=EntryKind.CHAR, major=1, minor=3)
FOLDER = Entry(path=b"d", kind=EntryKind.DIRECTORY)
TREE = Tree.of([FOLDER, FILE, LINK, DEVICE])


def test_equal_trees_have_no_difference() -> None:
    assert first_difference(TREE, Tree.of([FOLDER, FILE, LINK, DEVICE])) is None


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        (FILE, {"mode": 0o600}),
        (FILE, {"uid": 1}),
        (FILE, {"gid": 1}),
        (FILE, {"mtime_ns": 1}),
        (FILE, {"xattrs": ((b"user.a", b"1"),)}),
        (FILE, {"size": 4}),
        (FILE, {"digest": b"y" * 32}),
        (LINK, {"target": b"d"}),
        (DEVICE, {"major": 2}),
        (DEVICE, {"minor": 4}),
        (DEVICE, {"kind": EntryKind.BLOCK}),
        (FOLDER, {"opaque": True}),
    ],
)
def test_every_field_counts_and_is_named(entry: Entry, change: dict[str, Any]) -> None:
    others = [other for other in TREE if other.path != entry.path]
    difference = first_difference(TREE, Tree.of([*others, replace(entry, **change)]))
    assert difference is not None
    assert difference.startswith(f"{entry.path!r} has the {next(iter(change))} ")


def test_a_lost_hard_link_is_a_difference() -> None:
    names = [replace(FILE, path=b"a", link_group=1), replace(FILE, path=b"b", link_group=1)]
    copies = [replace(entry, link_group=0) for entry in names]
    assert "link_group" in str(first_difference(Tree.of(names), Tree.of(copies)))


def test_missing_and_added_paths_are_named() -> None:
    less = Tree.of([FOLDER, FILE, DEVICE])
    assert first_difference(TREE, less) == "b'l' is missing"
    assert first_difference(less, TREE) == "b'l' should not be there"
