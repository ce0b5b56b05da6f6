import itertools

import blake3
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.tree import ROOT, Entry, EntryKind, Tree, encode_entry, sparse_content_hasher
from tests.support.profiles import fewer
from tests.support.trees import Contents, trees

DIR, FILE, SYMLINK = EntryKind.DIRECTORY, EntryKind.FILE, EntryKind.SYMLINK


def file(path: bytes, **fields: object) -> Entry:
    known = {"digest": bytes(32), **fields}
    return Entry(path=path, kind=FILE, **known)  # type: ignore[arg-type]


def directory(path: bytes) -> Entry:
    return Entry(path=path, kind=DIR)


def test_entries_are_sorted_and_a_root_is_added() -> None:
    tree = Tree.of([file(b"b"), file(b"a")])
    assert [entry.path for entry in tree] == [b"", b"a", b"b"]
    assert tree.entries[0] == ROOT
    assert len(tree) == 3


def test_order_is_that_of_bytes_and_parents_come_first() -> None:
    paths = [b"a", b"a/x", b"a-b", b"a.b", b"\xff", b"A"]
    entries = [directory(path) if path == b"a" else file(path) for path in paths]
    assert [entry.path for entry in Tree.of(entries)] == [b"", *sorted(paths)]


@pytest.mark.parametrize(
    "path",
    [b"/a", b"a/", b"a//b", b".", b"..", b"a/..", b"a/./b", b"a\0b", b"x" * 256, b"none/a"],
)
def test_unsafe_paths_are_refused(path: bytes) -> None:
    with pytest.raises(InvalidInputError):
        Tree.of([directory(b"a"), file(path)])


@pytest.mark.parametrize(
    "path", [b"a b", b"a\nb", b"a\\'\"", b"\xff\xfe", b"x" * 255, b"...", b"-"]
)
def test_odd_names_are_kept(path: bytes) -> None:
    assert Tree.of([file(path)]).entries[1].path == path


def test_a_path_of_4000_bytes_is_kept() -> None:
    parts = [b"d" * 250] * 16
    paths = list(itertools.accumulate(parts, lambda left, right: left + b"/" + right))
    tree = Tree.of([directory(path) for path in paths])
    assert len(tree.entries[-1].path) == 4015


def test_duplicates_and_children_of_files_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        Tree.of([file(b"a"), file(b"a")])
    with pytest.raises(InvalidInputError, match="not a directory"):
        Tree.of([file(b"a"), file(b"a/b")])
    with pytest.raises(InvalidInputError, match="root"):
        Tree.of([file(b"")])


def test_link_groups_are_numbered_by_first_appearance() -> None:
    links = {b"a": 9, b"b": 4, b"c": 9, b"d": 4, b"lonely": 7}
    tree = Tree.of([file(path, link_group=group) for path, group in links.items()])
    assert [entry.link_group for entry in tree] == [0, 1, 2, 1, 2, 0]


@fewer
@given(trees(), st.randoms())
def test_the_digest_is_that_of_the_tree_and_not_of_the_order_given(
    drawn: tuple[Tree, Contents], random: st.DataObject
) -> None:
    tree, _ = drawn
    shuffled = list(tree.entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Tree.of(shuffled) == tree
    assert Tree.of(shuffled).digest() == tree.digest()


CHANGES: list[dict[str, object]] = [
    {"path": b"b"},
    {"kind": EntryKind.FIFO},
    {"mode": 0o4755},
    {"uid": 1},
    {"gid": 1},
    {"mtime_ns": 1},
    {"mtime_ns": -1},
    {"xattrs": ((b"user.a", b""),)},
    {"size": 1},
    {"digest": b"\1" * 32},
    {"kind": SYMLINK, "target": b"x"},
    {"kind": SYMLINK, "target": b"y"},
    {"kind": EntryKind.CHAR, "major": 1},
    {"kind": EntryKind.CHAR, "minor": 1},
    {"kind": EntryKind.BLOCK, "minor": 1},
    {"kind": EntryKind.WHITEOUT},
    {"kind": DIR},
    {"kind": DIR, "opaque": True},
]


def test_every_field_counts_in_the_digest() -> None:
    variants = [msgspec.structs.replace(file(b"a"), **change) for change in [{}, *CHANGES]]
    digests = {str(Tree.of([variant]).digest()) for variant in variants}
    assert len(digests) == len(variants)


def test_names_of_one_inode_differ_from_copies() -> None:
    copies = Tree.of([file(b"a"), file(b"b")])
    linked = Tree.of([file(b"a", link_group=1), file(b"b", link_group=1)])
    assert copies.digest() != linked.digest()


def test_the_encoding_is_pinned() -> None:
    """Every layer digest hangs on these bytes: a change here makes all published layers others."""
    entry = Entry(
        path=b"a",
        kind=FILE,
        mode=0o644,
        uid=1,
        gid=2,
        mtime_ns=-3,
        xattrs=((b"user.n", b"v"),),
        size=5,
        digest=bytes(range(32)),
    )
    assert encode_entry(entry).hex() == (
        "01000000" "02" "a401" "01000000" "02000000" "fdffffffffffffff" "00000000" "00" "01000000"
        "61" "0500000000000000" + bytes(range(32)).hex() + "06000000" "757365722e6e" "01000000" "76"
    )  # fmt: skip


def test_an_unknown_content_has_no_digest() -> None:
    with pytest.raises(ValueError, match="not known"):
        Tree.of([file(b"a", digest=b"")]).digest()


def test_sparse_digests_depend_on_size_and_runs() -> None:
    def digest(size: int, runs: list[tuple[int, int]], data: bytes) -> bytes:
        hasher = sparse_content_hasher(size, runs)
        hasher.update(data)
        return hasher.digest()

    data = b"x" * 4096
    found = {
        digest(8192, [(0, 4096)], data),
        digest(8192, [(4096, 4096)], data),
        digest(12288, [(4096, 4096)], data),
        digest(8192, [], b""),
        blake3.blake3(data).digest(),
    }
    assert len(found) == 5


def test_names_and_parents() -> None:
    entry = file(b"a/b/c")
    assert (entry.name, entry.parent) == (b"c", b"a/b")
    assert (ROOT.name, ROOT.parent, file(b"a").parent) == (b"", b"", b"")


def test_a_time_beyond_the_format_is_named() -> None:
    entry = Entry(path=b"late", kind=EntryKind.DIRECTORY, mtime_ns=1 << 63)
    with pytest.raises(InvalidInputError, match="late"):
        Tree.of([entry]).digest()
