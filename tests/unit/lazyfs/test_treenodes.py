from __future__ import annotations

import contextlib
import errno
import stat
from collections.abc import Iterator

import pytest
from hypothesis import given

from dsec_layers.lazyfs.treenodes import ROOT, Node, TreeNodes
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.profiles import fewer
from tests.support.trees import Contents, trees


def nodes(*entries: Entry, privileged: bool = False) -> TreeNodes:
    return TreeNodes(((7, entry) for entry in Tree.of(entries)), privileged=privileged)


def file(path: str, **fields: object) -> Entry:
    return Entry(path=path.encode(), kind=EntryKind.FILE, **fields)  # type: ignore[arg-type]


def folder(path: str) -> Entry:
    return Entry(path=path.encode(), kind=EntryKind.DIRECTORY, mode=0o700)


def at(tree: TreeNodes, path: str) -> Node:
    node = tree.node(ROOT)
    for name in path.split("/"):
        child = tree.child(node.number, name.encode())
        assert child is not None, path
        node = child
    return node


@contextlib.contextmanager
def refusal(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is what matters
        yield
    assert caught.value.errno == number


def test_names_links_and_numbers() -> None:
    tree = nodes(
        folder("a"),
        folder("a/sub"),
        file("a/one", link_group=3),
        file("b", link_group=3),
        file("a/sub/file", size=5),
    )
    assert tree.node(ROOT).links == 3
    assert at(tree, "a").links == 3
    assert at(tree, "a/one") is at(tree, "b")
    assert at(tree, "b").links == 2
    assert at(tree, "a/sub/file").layer == 7
    assert tree.child(ROOT, b"absent") is None
    assert [name for name, _, _ in tree.listing(ROOT)] == [b".", b"..", b"a", b"b"]
    sub = at(tree, "a/sub")
    assert tree.listing(sub.number)[:2] == [
        (b".", sub.number, stat.S_IFDIR),
        (b"..", at(tree, "a").number, stat.S_IFDIR),
    ]
    assert tree.listing(ROOT)[1] == (b"..", ROOT, stat.S_IFDIR)
    assert tree.listing(ROOT)[3][1:] == (at(tree, "b").number, stat.S_IFREG)
    assert (len(tree), tree.file_bytes) == (5, 5)


def test_what_stat_shows() -> None:
    tree = nodes(
        Entry(path=b"disk", kind=EntryKind.BLOCK, mode=0o660, major=8, minor=1, uid=5, gid=6),
        Entry(path=b"link", kind=EntryKind.SYMLINK, mode=0o777, target=b"/where"),
        file("file", size=9, mode=0o4755, mtime_ns=-1),
    )
    disk = tree.attributes(at(tree, "disk").number)
    assert (disk.mode, disk.major, disk.minor) == (stat.S_IFBLK | 0o660, 8, 1)
    assert (disk.uid, disk.gid) == (5, 6)
    link = tree.attributes(at(tree, "link").number)
    assert (link.mode, link.size) == (stat.S_IFLNK | 0o777, 6)
    assert tree.target(link.node) == b"/where"
    shown = tree.attributes(at(tree, "file").number)
    assert (shown.mode, shown.size, shown.mtime_ns) == (stat.S_IFREG | 0o4755, 9, -1)


def test_xattrs() -> None:
    entry = file("file", xattrs=((b"trusted.t", b"1"), (b"user.u", b"")))
    for privileged, names in ((False, [b"user.u"]), (True, [b"trusted.t", b"user.u"])):
        tree = nodes(entry, privileged=privileged)
        number = at(tree, "file").number
        assert tree.has_xattrs
        assert tree.xattr_names(number) == names
        assert tree.xattr(number, b"user.u") == b""
        with refusal(errno.ENODATA):
            tree.xattr(number, b"user.other")
    assert not nodes(file("file")).has_xattrs


def test_refusals() -> None:
    tree = nodes(file("file"), Entry(path=b"pipe", kind=EntryKind.FIFO))
    for number in (0, 4, 2**63):
        with refusal(errno.ESTALE):
            tree.node(number)
    with refusal(errno.ENOTDIR):
        tree.listing(at(tree, "file").number)
    with refusal(errno.ENOTDIR):
        tree.child(at(tree, "file").number, b"x")
    with refusal(errno.EINVAL):
        tree.target(ROOT)
    with refusal(errno.EISDIR):
        tree.file(ROOT)
    with refusal(errno.EINVAL):
        tree.file(at(tree, "pipe").number)


@fewer
@given(drawn=trees(changes=False))
def test_any_tree_is_found_again(drawn: tuple[Tree, Contents]) -> None:
    whole = drawn[0]
    tree = TreeNodes((0, entry) for entry in whole)
    found: list[Entry] = []

    def descend(path: bytes, node: Node) -> None:
        names = {other.path for other in whole if other.link_group == node.entry.link_group}
        if node.entry.kind is not EntryKind.DIRECTORY:
            assert node.links == (len(names) if node.entry.link_group else 1)
            found.append(node.entry)
            return
        rows = tree.listing(node.number)
        assert [name for name, _, _ in rows[2:]] == sorted(name for name, _, _ in rows[2:])
        assert node.links == 2 + sum(stat.S_ISDIR(mode) for _, _, mode in rows[2:])
        found.append(node.entry)
        for name, number, mode in rows[2:]:
            child = tree.child(node.number, name)
            assert child is tree.node(number)
            assert child is not None
            assert stat.S_IFMT(child.mode) == stat.S_IFMT(mode)
            descend(path + b"/" + name if path else name, child)

    descend(b"", tree.node(ROOT))
    assert len(found) == len(whole)
