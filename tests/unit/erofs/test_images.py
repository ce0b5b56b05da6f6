import mmap
import os
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.erofs.planning import Extent
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import UUID, build_image, write
from tests.support.profiles import fewer
from tests.support.trees import Contents, content_digest, trees

FILE = Entry(path=b"f", kind=EntryKind.FILE, mode=0o644)
DIRECTORY = Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755)
LINK = Entry(path=b"l", kind=EntryKind.SYMLINK, mode=0o777, target=b"t")
TARGETS = {EntryKind.SYMLINK: b"t"}
TIB = 1 << 40


def without_digests(tree: Tree) -> tuple[Entry, ...]:
    return tuple(replace(entry, digest=b"") for entry in tree)


def read_back(tree: Tree) -> tuple[Entry, ...]:
    return tuple(ErofsImage(write(tree)).walk())


@fewer
@given(trees())
def test_what_is_read_is_what_was_written(drawn: tuple[Tree, Contents]) -> None:
    tree, contents = drawn
    built = build_image(tree, contents)
    image = ErofsImage(built.metadata)
    assert tuple(image.walk()) == without_digests(tree)
    assert image.uuid == UUID
    assert image.device_blocks * 4096 == len(built.device)
    for entry in without_digests(tree):
        assert image.stat(entry.path) == replace(entry, link_group=0)
        assert image.xattrs(entry.path) == entry.xattrs
        if entry.kind is EntryKind.SYMLINK:
            assert image.readlink(entry.path) == entry.target
        if entry.kind is EntryKind.FILE:
            assert read_file(image, built.device, entry) == contents[entry.path]


def read_file(image: ErofsImage, device: bytes, entry: Entry) -> bytes:
    data = bytearray(entry.size)
    for extent in image.extents(entry.path):
        piece = device[extent.device_offset : extent.device_offset + extent.length]
        data[extent.file_offset : extent.file_offset + extent.length] = piece
    return bytes(data)


@fewer
@given(trees())
def test_the_same_tree_gives_the_same_bytes(drawn: tuple[Tree, Contents]) -> None:
    tree, contents = drawn
    again = Tree.of(reversed(tree.entries))
    assert build_image(tree, contents) == build_image(again, contents)


def test_the_empty_tree_is_two_blocks() -> None:
    image = write(Tree.of([]))
    assert len(image) == 2 * 4096
    assert [entry.path for entry in ErofsImage(image).walk()] == [b""]


def test_large_directories_are_found_in_and_listed() -> None:
    names = sorted(b"%d" % (number * 7919) for number in range(100_000))
    tree = Tree.of([replace(FILE, path=name) for name in names])
    image = ErofsImage(write(tree))
    assert [entry.path for entry in image.walk()] == [b"", *names]
    for name in (names[0], names[-1], names[50_000]):
        assert image.stat(name).path == name
    for name in (b"!", b"1", b"~", b".", b"..", names[3] + b"x"):
        with pytest.raises(NotFoundError):
            image.lookup(name)


def test_names_around_the_dots_are_sorted_with_them() -> None:
    names = [b"!", b"-", b".!", b".-", b"..", b"...", b"./", b".a", b"/", b"0"]
    entries = [replace(FILE, path=name) for name in names if b"/" not in name and name != b".."]
    assert read_back(Tree.of(entries)) == Tree.of(entries).entries


def test_entries_come_in_path_order_not_in_directory_order() -> None:
    tree = Tree.of(
        [
            replace(DIRECTORY, path=b"a"),
            replace(FILE, path=b"a!"),
            replace(FILE, path=b"a/x"),
            replace(FILE, path=b"a0"),
        ]
    )
    assert [entry.path for entry in read_back(tree)] == [b"", b"a", b"a!", b"a/x", b"a0"]


def test_long_names_and_long_paths() -> None:
    entries, path = [], b""
    while len(path) < 4000:
        path = (path + b"/" if path else b"") + b"\xff" * min(255, 4095 - len(path) - 1)
        entries.append(replace(DIRECTORY, path=path))
    assert read_back(Tree.of(entries)) == Tree.of(entries).entries
    deep = [replace(DIRECTORY, path=b"/".join([b"d"] * n)) for n in range(1, 2001)]
    assert read_back(Tree.of(deep)) == Tree.of(deep).entries


def test_a_directory_that_just_fits_behind_its_inode_and_one_that_does_not() -> None:
    for length in range(255):
        # 15 names of 243 bytes, the dots and one more name: 4,032 bytes fit behind an inode.
        names = [b"%02d" % n + b"n" * 241 for n in range(15)] + [b"z" * (length + 1)]
        tree = Tree.of([replace(FILE, path=name) for name in names])
        assert read_back(tree) == tree.entries


@pytest.mark.parametrize("length", [1, 3900, 4032, 4033, 4095])
def test_link_targets_of_all_lengths(length: int) -> None:
    xattrs = ((b"trusted.a", b"v" * 60),)
    tree = Tree.of(
        [
            replace(LINK, target=b"t" * length),
            replace(LINK, path=b"m", target=b"u" * length, xattrs=xattrs),
        ]
    )
    assert read_back(tree) == tree.entries


@pytest.mark.parametrize("size", [40, 5000, 65535])
def test_xattrs_of_all_sizes(size: int) -> None:
    xattrs = tuple((b"trusted.%d" % number, bytes([number]) * size) for number in range(3))
    kinds = (
        DIRECTORY,
        LINK,
        replace(FILE, size=4096),
        replace(FILE, path=b"p", kind=EntryKind.FIFO),
    )
    tree = Tree.of([replace(entry, xattrs=xattrs) for entry in kinds])
    assert read_back(tree) == tree.entries


def test_times_and_ids_at_their_limits() -> None:
    times = [-(2**63), -1, -(10**9), 0, 2**32 * 10**9, 2**63 - 1]
    tree = Tree.of(
        [
            replace(FILE, path=b"%d" % n, mtime_ns=time, uid=2**32 - 2, gid=2**32 - 2, mode=0o7777)
            for n, time in enumerate(times)
        ]
    )
    assert read_back(tree) == tree.entries


def test_hard_links_are_one_inode_whatever_their_kind() -> None:
    kinds = (EntryKind.FILE, EntryKind.SYMLINK, EntryKind.FIFO, EntryKind.SOCKET, EntryKind.BLOCK)
    entries = [DIRECTORY]
    for kind in kinds:
        entry = Entry(
            path=b"d/%d" % kind, kind=kind, target=TARGETS.get(kind, b""), link_group=kind
        )
        entries += [entry, replace(entry, path=b"z%d" % kind)]
    tree = Tree.of(entries)
    image = ErofsImage(write(tree))
    assert tuple(image.walk()) == tree.entries
    for kind in kinds:
        one, other = image.lookup(b"d/%d" % kind), image.lookup(b"z%d" % kind)
        assert one == other
        assert one.links == 2


def test_a_sparse_terabyte_has_a_bounded_index() -> None:
    data_at = TIB // 2
    tree = Tree.of([replace(FILE, size=TIB, digest=bytes(32))])
    extents = {b"f": [Extent(data_at, 0, 1 << 20)]}
    metadata = write(tree, extents, 256)
    assert len(metadata) < 9 << 20
    assert ErofsImage(metadata).extents(b"f") == extents[b"f"]
    with pytest.raises(ValueError, match="widen"):
        write(tree, {b"f": [Extent(data_at, 0, 4096)]}, 1)


def test_a_file_of_holes_and_one_in_one_piece_have_one_index_entry() -> None:
    entries = [replace(FILE, path=b"h", size=TIB), replace(FILE, path=b"w", size=TIB)]
    extents = {b"w": [Extent(0, 4096, TIB)]}
    metadata = write(Tree.of(entries), extents, TIB // 4096 + 1)
    assert len(metadata) == 2 * 4096
    assert ErofsImage(metadata).extents(b"h") == []
    assert ErofsImage(metadata).extents(b"w") == extents[b"w"]


def test_the_device_has_a_limit() -> None:
    tree = Tree.of([replace(FILE, size=4096)])
    last = [Extent(0, (2**32 - 2) * 4096, 4096)]
    assert ErofsImage(write(tree, {b"f": last}, 2**32 - 1)).extents(b"f") == last
    with pytest.raises(InvalidInputError, match="too large"):
        write(tree, {}, 2**32)
    with pytest.raises(ValueError, match="outside"):
        write(tree, {b"f": [Extent(0, 4096, 4096)]}, 1)


@pytest.mark.parametrize(
    "entry",
    [
        replace(LINK, path=b"bad", target=b""),
        replace(LINK, path=b"bad", target=b"t" * 4096),
        replace(LINK, path=b"bad", target=b"a\0b"),
        Entry(path=b"bad", kind=EntryKind.CHAR, major=4096),
        Entry(path=b"bad", kind=EntryKind.BLOCK, minor=2**20),
        replace(FILE, path=b"bad", uid=2**32),
        replace(FILE, path=b"bad", gid=2**32 - 1),
        replace(FILE, path=b"bad", mtime_ns=2**63 * 10**9),
        replace(FILE, path=b"bad", size=2**64),
        replace(FILE, path=b"bad", xattrs=((b"trusted.overlay." + b"n" * 232, b""),)),
    ],
)
def test_what_the_format_cannot_hold_is_refused_by_name(entry: Entry) -> None:
    with pytest.raises(InvalidInputError, match="bad"):
        write(Tree.of([entry]))


def test_paths_longer_than_the_kernel_takes_are_refused() -> None:
    deep = [replace(DIRECTORY, path=b"/".join([b"d"] * n)) for n in range(1, 2050)]
    with pytest.raises(InvalidInputError, match="4095"):
        write(Tree.of(deep))


def test_paths_that_are_not_there_or_of_another_kind() -> None:
    image = ErofsImage(write(Tree.of([DIRECTORY, replace(FILE, path=b"d/f"), LINK])))
    for path in (b"x", b"d/x", b"d/f/x", b"l/x", b"d/", b"/d", b"d/..", b".", b"d//f"):
        with pytest.raises(NotFoundError):
            image.stat(path)
    with pytest.raises(NotFoundError, match="not a symlink"):
        image.readlink(b"d/f")
    with pytest.raises(NotFoundError, match="not a file"):
        image.extents(b"d")


def test_directories_are_read_with_stored_kinds() -> None:
    null = Entry(path=b"n", kind=EntryKind.CHAR)
    image = ErofsImage(write(Tree.of([null, Entry(path=b"w", kind=EntryKind.WHITEOUT)])))
    kinds = [(name, kind) for name, _, kind in image.read_directory(image.lookup(b""))]
    assert kinds == [(b"n", EntryKind.FILE), (b"w", EntryKind.CHAR)]


def test_an_image_may_lie_in_an_mmap(tmp_path: Path) -> None:
    data = b"content"
    tree = Tree.of([replace(FILE, size=len(data), digest=content_digest(data))])
    path = tmp_path / "image"
    path.write_bytes(build_image(tree, {b"f": data}).metadata)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with (
            mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped,
            ErofsImage(mapped) as image,
        ):
            assert image.extents(b"f") == [Extent(0, 0, len(data))]
    finally:
        os.close(descriptor)
