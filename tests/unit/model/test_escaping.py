import pytest
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.model.escaping import from_overlay, from_stored, stored_entries, to_stored
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.profiles import fewer
from tests.support.trees import Contents, trees

NULL = Entry(path=b"n", kind=EntryKind.CHAR, mode=0o640, uid=7, gid=8, mtime_ns=-5)
EMPTY = Entry(path=b"n", kind=EntryKind.FILE, mode=0o640, uid=7, gid=8, mtime_ns=-5)
MARKER = b"trusted.overlay.whiteout"
ESCAPED_MARKER = b"trusted.overlay.overlay.whiteout"


@fewer
@given(trees())
def test_every_entry_comes_back(drawn: tuple[Tree, Contents]) -> None:
    for entry in drawn[0]:
        entry = replace(entry, digest=b"")
        assert from_stored(to_stored(entry)) == entry


def test_a_whiteout_is_a_null_device_and_nothing_else() -> None:
    whiteout = Entry(path=b"w", kind=EntryKind.WHITEOUT)
    assert to_stored(whiteout) == Entry(path=b"w", kind=EntryKind.CHAR)
    assert from_stored(replace(NULL, path=b"w")) == whiteout


def test_a_null_device_of_the_content_is_a_marked_empty_file() -> None:
    assert to_stored(NULL) == replace(EMPTY, xattrs=((ESCAPED_MARKER, b"y"),))
    assert to_stored(replace(NULL, minor=3)) == replace(NULL, minor=3)


def test_overlay_xattrs_of_the_content_get_one_more_level() -> None:
    names = (b"trusted.overlay.", b"trusted.overlay.opaque", b"trusted.overlay.overlay.x")
    entry = replace(EMPTY, size=1, xattrs=tuple((name, b"v") for name in names))
    stored = to_stored(entry)
    assert [name for name, _ in stored.xattrs] == [
        b"trusted.overlay.overlay.",
        b"trusted.overlay.overlay.opaque",
        b"trusted.overlay.overlay.overlay.x",
    ]
    assert from_stored(stored) == entry


def test_an_opaque_directory_may_have_the_xattr_of_one_as_content() -> None:
    directory = Entry(
        path=b"d",
        kind=EntryKind.DIRECTORY,
        opaque=True,
        xattrs=((b"trusted.overlay.opaque", b"no"),),
    )
    assert to_stored(directory).xattrs == (
        (b"trusted.overlay.opaque", b"y"),
        (b"trusted.overlay.overlay.opaque", b"no"),
    )
    assert from_stored(to_stored(directory)) == directory


@pytest.mark.parametrize("value", [b"", b"y", b"yd", b"yf", b"yfy", b"z"])
def test_a_null_device_and_an_empty_file_with_its_marker_are_never_the_same(value: bytes) -> None:
    stored = set()
    for entry in (NULL, replace(EMPTY, xattrs=((MARKER, value),))):
        for each in (entry, replace(entry, xattrs=((MARKER, value),))):
            assert from_stored(to_stored(each)) == each
            stored.add(to_stored(each).xattrs)
    assert len(stored) == 3


def test_what_an_overlay_shows_has_lost_one_level() -> None:
    shown = replace(EMPTY, digest=b"d" * 32, xattrs=((MARKER, b"y"), (b"user.a", b"b")))
    assert from_overlay(shown) == replace(NULL, xattrs=((b"user.a", b"b"),))
    assert from_overlay(replace(shown, size=1)) == replace(shown, size=1)


@fewer
@given(trees())
def test_a_whole_tree_comes_back(drawn: tuple[Tree, Contents]) -> None:
    tree = Tree.of(replace(entry, digest=b"") for entry in drawn[0])
    assert tuple(from_stored(entry) for entry in stored_entries(tree)) == tree.entries


def test_directories_with_whiteouts_are_marked_for_the_kernel() -> None:
    directory = Entry(path=b"d", kind=EntryKind.DIRECTORY)
    inside = Entry(path=b"d/w", kind=EntryKind.WHITEOUT)
    other = Entry(path=b"e", kind=EntryKind.DIRECTORY)
    stored = {
        entry.path: entry.xattrs for entry in stored_entries(Tree.of([directory, inside, other]))
    }
    assert stored == {b"": (), b"d": ((b"trusted.overlay.origin", b""),), b"d/w": (), b"e": ()}


def test_marks_of_overlayfs_itself_are_dropped() -> None:
    xattrs = ((b"trusted.overlay.impure", b"y"), (b"trusted.overlay.origin", b""), (b"user.a", b""))
    assert from_stored(replace(EMPTY, xattrs=xattrs)).xattrs == ((b"user.a", b""),)
