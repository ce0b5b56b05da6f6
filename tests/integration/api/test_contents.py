"""Looking without a mount agrees with a mount: the composed tree, `find`, and the bytes read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.api import contents
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import NotFoundError
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import Image, build_image
from tests.support.mounts import Mounts
from tests.support.trees import Contents, content_digest

pytestmark = [pytest.mark.root, pytest.mark.erofs]

NAMES = st.sampled_from([b"a", b"b", b"c"])
TARGETS = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"..", b"."]), min_size=1, max_size=4
).flatmap(lambda parts: st.sampled_from([b"/".join(parts), b"/" + b"/".join(parts)]))
PATHS = [
    b"/".join(parts)
    for parts in (
        *([one] for one in (b"a", b"b", b"c")),
        *([one, two] for one in (b"a", b"b", b"c") for two in (b"a", b"b", b"..")),
        *([one, b"a", two] for one in (b"a", b"b") for two in (b"b", b"c", b"..")),
    )
]


@st.composite
def layers(draw: st.DrawFn, number: int) -> tuple[Tree, Contents]:
    """A layer of few names, so that layers meet; links lead anywhere."""
    kinds = [EntryKind.DIRECTORY] * 3 + [EntryKind.FILE] * 2 + [EntryKind.SYMLINK] * 2
    kinds += [EntryKind.WHITEOUT] if number else []
    entries: dict[bytes, Entry] = {}
    data: Contents = {}
    directories = [b""]
    for count in range(draw(st.integers(0, 8))):
        path = b"/".join(filter(None, (draw(st.sampled_from(directories)), draw(NAMES))))
        if path in entries or path.count(b"/") > 2:
            continue
        kind = draw(st.sampled_from(kinds))
        text = b"%d.%d" % (number, count) if kind is EntryKind.FILE else b""
        entries[path] = Entry(
            path=path,
            kind=kind,
            mode=0o777 if kind is EntryKind.SYMLINK else 0o755,
            opaque=kind is EntryKind.DIRECTORY and number > 0 and draw(st.booleans()),
            target=draw(TARGETS) if kind is EntryKind.SYMLINK else b"",
            size=len(text),
            digest=content_digest(text) if kind is EntryKind.FILE else b"",
        )
        if kind is EntryKind.FILE:
            data[path] = text
        if kind is EntryKind.DIRECTORY:
            directories.append(path)
    return Tree.of(entries.values()), data


@st.composite
def stacks(draw: st.DrawFn) -> list[Image]:
    """Images of layers, lowest first."""
    return [build_image(*draw(layers(number))) for number in range(draw(st.integers(1, 4)))]


@contextlib.contextmanager
def shown(mounts: Mounts, images: Sequence[Image]) -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        lowers = [stack.enter_context(mounts.image(image)) for image in reversed(images)]
        yield stack.enter_context(mounts.overlay(*lowers))


def chrooted(root: Path, paths: Sequence[bytes]) -> list[tuple[int, int] | None]:
    """Inode and mode of what the kernel finds at each path for a process whose root is `root`."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.chroot(root)
            os.chdir("/")
            os.write(write, b"\n".join(map(_found, paths)))
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as said:
        lines = said.read().split(b"\n")
    os.waitpid(child, 0)
    found = [tuple(map(int, line.split())) for line in lines]
    return [(one[0], one[1]) if one else None for one in found]


def _found(path: bytes) -> bytes:
    try:
        status = os.stat(b"/" + path)
    except OSError:
        return b""
    return b"%d %d" % (status.st_ino, status.st_mode)


@given(images=stacks())
def test_the_composed_tree_is_that_of_the_mount(mounts: Mounts, images: list[Image]) -> None:
    composed = contents.composed_tree([ErofsImage(image.metadata) for image in images])
    with shown(mounts, images) as root:
        listed = {
            os.path.relpath(os.path.join(folder, name), os.fsencode(root))
            for folder, folders, files in os.walk(os.fsencode(root))
            for name in (*folders, *files)
        }
        assert {entry.path for entry in composed if entry.path} == listed
        for entry in composed:
            status = os.lstat(os.path.join(os.fsencode(root), entry.path))
            assert stat.S_IMODE(status.st_mode) == entry.mode
            if entry.kind is EntryKind.FILE:
                assert status.st_size == entry.size


@given(images=stacks())
def test_find_finds_what_the_kernel_finds(mounts: Mounts, images: list[Image]) -> None:
    readers = [ErofsImage(image.metadata) for image in images]
    with shown(mounts, images) as root:
        for path, status in zip(PATHS, chrooted(root, PATHS), strict=True):
            try:
                index, entry = contents.find(readers, path)
            except NotFoundError:
                assert status is None, path
                continue
            assert status is not None, path
            inode, mode = status
            assert stat.S_ISDIR(mode) == (entry.kind is EntryKind.DIRECTORY)
            place = os.stat(os.path.join(os.fsencode(root), entry.path))
            assert place.st_ino == inode
            if entry.kind is EntryKind.FILE:
                assert _content(images[index], entry.path).startswith(b"%d." % index)


def _content(image: Image, path: bytes) -> bytes:
    (extent,) = image.extents[path]
    return image.device[extent.device_offset : extent.device_offset + extent.length]
