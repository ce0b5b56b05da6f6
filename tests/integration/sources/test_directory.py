"""Directories with all that only root can make, and archives of them by the tar of the system."""

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from dsec_layers.errors import CorruptError, NoSpaceError
from dsec_layers.linux import mount, process
from dsec_layers.model.content import Source, Spooled
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.archive import read_tar
from dsec_layers.sources.directory import walk
from tests.support.tars import contents
from tests.support.trees import Contents, materialise, trees

pytestmark = pytest.mark.root

CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service+ep
quick = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def undigested(tree: Tree) -> Tree:
    return Tree.of(msgspec.structs.replace(entry, digest=b"") for entry in tree)


def fresh(folder: Path) -> Path:
    """A new directory in `folder`, for examples that share it."""
    path = folder / str(len(list(folder.iterdir())))
    path.mkdir()
    return path


@quick
@given(trees(changes=False))
def test_any_tree_on_a_disk_is_walked_as_it_is(
    tmp_path: Path, drawn: tuple[Tree, Contents]
) -> None:
    tree, data = drawn
    root = fresh(tmp_path)
    materialise(tree, data, root)
    source = walk(root)
    assert source.tree == undigested(tree)
    assert contents(source) == data


def test_devices_owners_and_sockets(tmp_path: Path) -> None:
    os.mknod(tmp_path / "char", stat.S_IFCHR | 0o640, os.makedev(300, 70000))
    os.mknod(tmp_path / "null", stat.S_IFCHR | 0o640, os.makedev(0, 0))
    os.mknod(tmp_path / "sock", stat.S_IFSOCK | 0o755)
    os.chown(tmp_path / "char", 2**32 - 2, 70000)
    entries = walk(tmp_path).tree.by_path()
    char, null = entries[b"char"], entries[b"null"]
    assert (char.major, char.minor, char.uid, char.gid) == (300, 70000, 2**32 - 2, 70000)
    assert (null.kind, null.major, null.minor) == (EntryKind.CHAR, 0, 0)
    assert entries[b"sock"].kind is EntryKind.SOCKET


def test_capabilities_and_attributes_like_those_of_overlayfs(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    os.setxattr(tmp_path / "f", "security.capability", CAPABILITY)
    os.setxattr(tmp_path / "f", "trusted.overlay.opaque", b"y")
    os.setxattr(tmp_path / "f", "trusted.overlay.whiteout", b"y")
    entry = walk(tmp_path).tree.by_path()[b"f"]
    assert entry.kind is EntryKind.FILE
    assert entry.xattrs == (
        (b"security.capability", CAPABILITY),
        (b"trusted.overlay.opaque", b"y"),
        (b"trusted.overlay.whiteout", b"y"),
    )


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A directory with a small tmpfs inside."""
    inner = tmp_path / "root" / "inner"
    inner.mkdir(parents=True)
    mount.mount_tmpfs(inner, options="size=1m,mode=0711")
    (inner / "f").write_bytes(b"")
    yield tmp_path / "root"
    mount.unmount(inner)


def test_mounts_are_crossed_unless_told_not_to(mounted: Path) -> None:
    assert [entry.path for entry in walk(mounted).tree] == [b"", b"inner", b"inner/f"]
    stayed = walk(mounted, one_file_system=True)
    assert [entry.path for entry in stayed.tree] == [b"", b"inner"]
    assert stayed.tree.entries[1].mode == 0o711


def test_a_full_disk_is_told_as_such(mounted: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(2 << 20))
    process.run(["tar", "-C", tmp_path, "-cf", tmp_path / "a.tar", "data"])
    with (tmp_path / "a.tar").open("rb") as stream, pytest.raises(NoSpaceError, match="inner"):
        read_tar(stream, mounted / "inner" / "spool")


def tarred(root: Path, *options: str) -> Source:
    """`root` through the tar of the system and a pipe."""
    argv: list[str | Path] = ["tar", "-C", root, "--numeric-owner", *options, "-cf", "-", "."]
    with process.start(argv, stderr=None) as child:
        assert child.stdout is not None
        source = read_tar(child.stdout, root.parent / "spool")
        assert child.wait() == 0
    return source


def kept_by_gnu_tar(tree: Tree) -> Iterator[Entry]:
    """It drops sockets, xattrs of symlinks and the like, and hard links of devices and fifos."""
    for entry in tree:
        if entry.kind in (EntryKind.FILE, EntryKind.DIRECTORY):
            yield entry
        elif entry.kind is EntryKind.SYMLINK:
            yield msgspec.structs.replace(entry, xattrs=())
        elif entry.kind is not EntryKind.SOCKET:
            yield msgspec.structs.replace(entry, xattrs=(), link_group=0)


@quick
@given(trees(changes=False))
def test_gnu_tar_in_pax_format_keeps_any_tree(tmp_path: Path, drawn: tuple[Tree, Contents]) -> None:
    tree, data = drawn
    tree = Tree.of(kept_by_gnu_tar(tree))
    folder = fresh(tmp_path)
    root = folder / "root"
    root.mkdir()
    materialise(tree, data, root)
    source = tarred(root, "--format=pax", "--xattrs", "--xattrs-include=*")
    assert source.tree == undigested(tree)
    assert contents(source) == {
        entry.path: data[entry.path] for entry in tree if entry.kind is EntryKind.FILE
    }


@pytest.mark.parametrize(
    "options",
    [
        ["--format=gnu"],
        ["--format=oldgnu"],
        ["--format=pax", "--sparse-version=0.0"],
        ["--format=pax", "--sparse-version=0.1"],
        ["--format=pax", "--sparse-version=1.0"],
    ],
    ids=lambda options: "".join(options),
)
def test_sparse_files_of_gnu_tar(tmp_path: Path, options: list[str]) -> None:
    """One of a tebibyte, and one with so many holes that its map needs more than the header."""
    root = tmp_path / "root"
    root.mkdir()
    with open(root / "big", "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"d" * 4096)
    many = (b"x" * 4096 + bytes(12288)) * 100
    with open(root / "many", "wb") as file:
        for at in range(0, len(many), 16384):
            file.seek(at)
            file.write(b"x" * 4096)
        file.truncate(len(many))
    source = tarred(root, "--sparse", *options)
    big = source.contents[b"big"]
    assert isinstance(big, Spooled)
    assert source.tree.by_path()[b"big"].size == 1 << 40
    assert [(offset, length) for offset, length, _ in big.runs] == [(1 << 39, 4096)]
    many_content = Source(source.tree, {b"many": source.contents[b"many"]})
    assert contents(many_content) == {b"many": many}
    assert os.path.getsize(big.path) < 1 << 20


def test_names_and_targets_of_gnu_tar(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "/".join(["d" * 200] * 10)
    folder.mkdir(parents=True)
    (folder / "f").write_bytes(b"1")
    os.link(folder / "f", root / "z")
    (root / "l").symlink_to("t" * 3000)
    walked = walk(root).tree
    seconds = Tree.of(
        msgspec.structs.replace(entry, mtime_ns=entry.mtime_ns // 10**9 * 10**9) for entry in walked
    )
    assert tarred(root, "--format=gnu").tree == seconds
    assert tarred(root, "--format=pax").tree == walked


def test_a_writer_that_is_killed_leaves_a_corrupt_archive(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(os.urandom(1 << 20))
    with process.start(["tar", "-C", root, "-cf", "-", "a"]) as child:
        assert child.stdout is not None

        class Killed:
            """Kills the writer when half is read."""

            left = 1 << 19

            def read(self, size: int, /) -> bytes:
                if self.left <= 0:
                    return b""
                piece = child.stdout.read(min(size, self.left)) if child.stdout else b""
                self.left -= len(piece)
                return piece

        with pytest.raises(CorruptError, match=r"too early.*'a'"):
            read_tar(Killed(), tmp_path / "spool")
