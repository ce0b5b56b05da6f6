"""Through an overlay whiteouts hide what is below, and content that looks like them is shown."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.model.escaping import from_overlay
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import Image, build_image, write
from tests.support.mounts import Mounts, below, read_entry, read_runs
from tests.support.trees import Contents, materialise, trees

pytestmark = [pytest.mark.root, pytest.mark.erofs]

FILE = Entry(path=b"f", kind=EntryKind.FILE, mode=0o644)
DIRECTORY = Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755)


@given(drawn=trees(changes=False, max_inodes=8))
def test_an_overlay_shows_the_content_as_it_was(
    mounts: Mounts, drawn: tuple[Tree, Contents]
) -> None:
    tree, contents = drawn
    with mounts.image(build_image(tree, contents)) as lower, mounts.overlay(lower) as top:
        for entry in tree:
            found = read_entry(top, entry.path, entry.link_group)
            assert from_overlay(found) == replace(entry, digest=b"")
        for path, data in contents.items():
            assert Path(os.fsdecode(below(top, path))).read_bytes() == data


@given(drawn=trees(changes=False, max_inodes=8))
def test_an_overlay_equals_the_directory_it_was_made_from(
    mounts: Mounts, drawn: tuple[Tree, Contents]
) -> None:
    tree, contents = drawn
    with (
        mounts.image(build_image(tree, contents)) as lower,
        mounts.overlay(lower) as top,
        tempfile.TemporaryDirectory(dir=mounts.folder) as name,
    ):
        source = Path(name, "source")
        source.mkdir()
        materialise(tree, contents, source)
        for entry in tree:
            assert from_overlay(read_entry(top, entry.path)) == read_entry(source, entry.path)
        for path in contents:
            one, other = below(top, path), below(source, path)
            assert Path(os.fsdecode(one)).read_bytes() == Path(os.fsdecode(other)).read_bytes()
            assert read_runs(one) == read_runs(other)


def test_whiteouts_and_opaque_directories_hide_what_is_below(mounts: Mounts) -> None:
    files = [replace(FILE, path=path) for path in (b"d/old", b"gone", b"kept")]
    below_tree = Tree.of([DIRECTORY, *files])
    above_tree = Tree.of(
        [
            replace(DIRECTORY, opaque=True),
            replace(FILE, path=b"d/new"),
            Entry(path=b"gone", kind=EntryKind.WHITEOUT),
            replace(DIRECTORY, path=b"null"),
            Entry(path=b"null/device", kind=EntryKind.CHAR, mode=0o604),
            replace(DIRECTORY, path=b"null/d", xattrs=((b"trusted.overlay.opaque", b"y"),)),
        ]
    )
    images = [Image(write(tree), b"", {}) for tree in (above_tree, below_tree)]
    with (
        mounts.image(images[0]) as upper,
        mounts.image(images[1]) as lower,
        mounts.overlay(upper, lower) as top,
    ):
        assert sorted(os.listdir(top)) == ["d", "kept", "null"]
        assert os.listdir(top / "d") == ["new"]
        assert sorted(os.listdir(top / "null")) == ["d", "device"]
        assert os.getxattr(top / "null/d", "trusted.overlay.opaque") == b"y"
        assert os.getxattr(top / "null/device", "trusted.overlay.whiteout") == b"y"
        assert (top / "null/device").stat().st_mode & 0o7777 == 0o604
