"""Walking directories as any user; what needs root is in tests/integration/sources."""

import os
from pathlib import Path

import pytest

from dsec_layers.errors import BusyError, InvalidInputError, NotFoundError
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.tree import Entry, EntryKind
from dsec_layers.sources.directory import walk
from dsec_layers.sources.scan import scan


def paths(source: Source) -> list[bytes]:
    return [entry.path for entry in source.tree][1:]


def test_files_directories_links_and_fifos(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o750)
    (tmp_path / "d" / "f").write_bytes(b"hello")
    os.chmod(tmp_path / "d" / "f", 0o4711)
    os.utime(tmp_path / "d" / "f", ns=(1, 1700000000123456789))
    (tmp_path / "l").symlink_to("../else where")
    os.mkfifo(tmp_path / "p")
    source = walk(tmp_path)
    entries = source.tree.by_path()
    assert paths(source) == [b"d", b"d/f", b"l", b"p"]
    assert entries[b"d/f"] == Entry(
        path=b"d/f",
        kind=EntryKind.FILE,
        mode=0o4711,
        uid=os.getuid(),
        gid=os.getgid(),
        mtime_ns=1700000000123456789,
        size=5,
    )
    assert (entries[b"l"].kind, entries[b"l"].target) == (EntryKind.SYMLINK, b"../else where")
    assert entries[b"p"].kind is EntryKind.FIFO
    assert source.contents == {b"d/f": LocalFile(os.fsencode(tmp_path / "d" / "f"))}


@pytest.mark.parametrize("time_ns", [-1, -1_500_000_000, 0, 2**32 * 10**9 + 7])
def test_times_far_away(tmp_path: Path, time_ns: int) -> None:
    os.utime(tmp_path, ns=(0, time_ns))
    assert walk(tmp_path).tree.entries[0].mtime_ns == time_ns


def test_hard_links_of_all_kinds(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    (tmp_path / "l").symlink_to("x")
    os.mkfifo(tmp_path / "p")
    for name in ("f", "l", "p"):
        os.link(tmp_path / name, tmp_path / f"{name}2", follow_symlinks=False)
    source = walk(tmp_path)
    groups = {entry.path: entry.link_group for entry in source.tree if entry.path}
    assert groups == {b"f": 1, b"f2": 1, b"l": 2, b"l2": 2, b"p": 3, b"p2": 3}
    assert set(source.contents) == {b"f", b"f2"}


def test_a_link_whose_other_names_are_outside_is_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "f").write_bytes(b"")
    os.link(tmp_path / "f", tmp_path / "in" / "f")
    assert [entry.link_group for entry in walk(tmp_path / "in").tree] == [0, 0]


@pytest.mark.parametrize("name", [b"a b", b"a\nb", b"\xff\xfe", b"a\\'\"", b"x" * 255, b"..."])
def test_odd_names(tmp_path: Path, name: bytes) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
        pass
    assert paths(walk(tmp_path)) == [name]


def deep(root: Path, depth: int) -> bytes:
    """Make directories of 250-byte names inside each other, whatever the length of their path."""
    here = os.open(root, os.O_RDONLY)
    name = b"d" * 250
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return b"/".join([name] * depth)


def test_paths_up_to_the_limit_of_the_kernel_are_kept_and_beyond_refused(tmp_path: Path) -> None:
    path = deep(tmp_path, 15)
    assert paths(walk(tmp_path))[-1] == path
    (tmp_path / "more").mkdir()
    deep(tmp_path / "more", 17)
    with pytest.raises(InvalidInputError, match="too long"):
        walk(tmp_path)


def test_excluded_paths_are_left_out_with_all_below(tmp_path: Path) -> None:
    for name in ("proc/1/fd", "proc2", "tmp/proc"):
        (tmp_path / name).mkdir(parents=True)
    assert paths(walk(tmp_path, exclude=[b"proc"])) == [b"proc2", b"tmp", b"tmp/proc"]


def test_sparse_files_have_their_size(tmp_path: Path) -> None:
    with open(tmp_path / "big", "wb") as file:
        file.truncate(1 << 40)
    assert walk(tmp_path).tree.by_path()[b"big"].size == 1 << 40


def test_a_root_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        walk(tmp_path / "none")
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="not a directory"):
        walk(tmp_path / "f")


def test_the_root_may_be_a_symlink_to_a_directory(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "l").symlink_to("d")
    assert paths(walk(tmp_path / "l")) == [b"e"]


def test_what_vanishes_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").symlink_to("x")
    real = os.readlink

    def vanishing(place: bytes) -> bytes:
        os.unlink(place)
        return real(place)

    monkeypatch.setattr(os, "readlink", vanishing)
    with pytest.raises(BusyError, match=r"/a changed"):
        walk(tmp_path)


def test_file_systems_without_xattrs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object, **__: object) -> list[str]:
        raise OSError(95, "Operation not supported")

    (tmp_path / "f").write_bytes(b"")
    monkeypatch.setattr(os, "listxattr", unsupported)
    assert paths(walk(tmp_path)) == [b"f"]


def test_labels_of_the_host_are_no_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "user.b",
        "security.selinux",
        "security.ima",
        "security.evm",
        "system.nfs4_acl",
        "system.posix_acl_access",
        "security.capability",
        "user.a",
    ]
    monkeypatch.setattr(os, "listxattr", lambda *_, **__: names)
    monkeypatch.setattr(os, "getxattr", lambda _, name, **__: name.encode())
    kept = [name for name, _ in scan(os.fsencode(tmp_path)).tree.entries[0].xattrs]
    assert kept == [b"security.capability", b"system.posix_acl_access", b"user.a", b"user.b"]
