"""Extended attributes of archives: what the kernel would not keep is left out or refused."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.tree import EntryKind
from dsec_layers.sources.attributes import kept
from tests.support.tars import archive, member, read

NONE = 0xFFFFFFFF
ACCESS, DEFAULT = b"system.posix_acl_access", b"system.posix_acl_default"
CAPABILITY = b"security.capability"


def access_list(*entries: tuple[int, int, int], version: int = 2) -> bytes:
    body = b"".join(struct.pack("<HHI", *entry) for entry in entries)
    return struct.pack("<I", version) + body


WITH_USER = access_list((1, 6, NONE), (2, 4, 1000), (4, 4, NONE), (16, 4, NONE), (32, 0, NONE))
SETS = bytes(range(16))


def names(kind: EntryKind, *xattrs: tuple[bytes, bytes]) -> list[bytes]:
    return [name for name, _ in kept(kind, xattrs)]


@pytest.mark.parametrize("kind", set(EntryKind) - {EntryKind.WHITEOUT})
def test_only_files_and_directories_have_attributes_of_users(kind: EntryKind) -> None:
    has = kind in (EntryKind.FILE, EntryKind.DIRECTORY)
    found = names(kind, (b"user.a", b""), (b"trusted.b", b""), (b"security.c", b""))
    assert found == [*([b"user.a"] if has else []), b"trusted.b", b"security.c"]


@pytest.mark.parametrize("name", [b"com.apple.quarantine", b"user.", b"system.nfs4_acl", b"user"])
def test_what_linux_has_no_place_for_is_left_out(name: bytes) -> None:
    assert names(EntryKind.FILE, (name, b"x")) == []


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (EntryKind.DIRECTORY, [ACCESS, DEFAULT]),
        (EntryKind.FILE, [ACCESS]),
        (EntryKind.FIFO, [ACCESS]),
        (EntryKind.SYMLINK, []),
    ],
)
def test_who_has_access_lists(kind: EntryKind, found: list[bytes]) -> None:
    assert names(kind, (ACCESS, WITH_USER), (DEFAULT, WITH_USER)) == found
    assert names(kind, (ACCESS, access_list())) == []


def test_an_access_list_has_the_form_that_the_kernel_gives_back() -> None:
    zeros = access_list((1, 6, 0), (2, 4, 1000), (4, 4, 7), (16, 4, 0), (32, 0, 0))
    assert list(kept(EntryKind.FILE, [(ACCESS, zeros)])) == [(ACCESS, WITH_USER)]
    assert list(kept(EntryKind.FILE, [(ACCESS, WITH_USER)])) == [(ACCESS, WITH_USER)]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\2\0\0",
        WITH_USER[:-1],
        access_list((1, 6, NONE), (4, 4, NONE), (32, 4, NONE), version=3),
        access_list((1, 6, NONE), (4, 4, NONE)),
        access_list((4, 4, NONE), (1, 6, NONE), (32, 4, NONE)),
        access_list((1, 6, NONE), (2, 4, 1), (4, 4, NONE), (32, 4, NONE)),
        access_list((1, 6, NONE), (2, 4, NONE), (4, 4, NONE), (16, 4, NONE), (32, 4, NONE)),
        access_list((1, 8, NONE), (4, 4, NONE), (32, 4, NONE)),
        access_list((0x101, 6, NONE), (4, 4, NONE), (32, 4, NONE)),
    ],
)
def test_a_malformed_access_list_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="malformed access list system"):
        names(EntryKind.DIRECTORY, (DEFAULT, value))


def test_capabilities_of_the_own_root_are_of_revision_2() -> None:
    two = struct.pack("<I", 0x02000001) + SETS
    three = struct.pack("<I", 0x03000001) + SETS
    root, other = three + bytes(4), three + struct.pack("<I", 100000)
    for given, found in ((two, two), (root, two), (other, other)):
        assert list(kept(EntryKind.FILE, [(CAPABILITY, given)])) == [(CAPABILITY, found)]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        struct.pack("<I", 0x01000000) + bytes(8),
        struct.pack("<I", 0x03000000) + SETS,
        struct.pack("<I", 0x02000002) + SETS,
        struct.pack("<I", 0x02000000) + SETS + bytes(4),
        struct.pack("<I", 0x03000000) + SETS + b"\xff\xff\xff\xff",
    ],
)
def test_malformed_capabilities_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="malformed capabilities"):
        names(EntryKind.FILE, (CAPABILITY, value))


def test_an_archive_is_cleaned_and_refused_by_the_name_of_its_member(tmp_path: Path) -> None:
    pax = {"SCHILY.xattr.user.a": "1", "SCHILY.xattr.trusted.b": "2"}
    link = member("d/l", tarfile.SYMTYPE, link="x", pax=pax)
    assert read(archive([link]), tmp_path).tree.entries[-1].xattrs == ((b"trusted.b", b"2"),)
    bad = member("d/f", pax={"SCHILY.xattr.security.capability": "x"})
    with pytest.raises(InvalidInputError, match="b'd/f' has malformed capabilities"):
        read(archive([bad]), tmp_path)
    with pytest.raises(InvalidInputError, match="b'd/f' has an extended attribute with a NUL"):
        read(archive([member("d/f", pax={"SCHILY.xattr.user.a\0b": "x"})]), tmp_path)
