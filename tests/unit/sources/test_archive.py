import gzip
import io
import os
import re
import resource
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings

from dsec_layers.errors import CorruptError, InvalidInputError, NoSpaceError
from dsec_layers.model.content import Source, Spooled
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.archive import read_tar
from tests.support.profiles import fewer
from tests.support.tars import (
    END,
    Member,
    archive,
    contents,
    directory,
    hard_link,
    member,
    padded,
    pax_member,
    pax_record,
    raw_header,
    read,
    symlink,
)
from tests.support.trees import Contents, trees

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def paths(source: Source) -> list[bytes]:
    return [entry.path for entry in source.tree][1:]


def only(source: Source) -> Entry:
    """The one entry besides the root."""
    assert len(source.tree) == 2
    return source.tree.entries[1]


@pytest.mark.parametrize("format_name", FORMATS)
def test_all_kinds_and_fields(tmp_path: Path, format_name: str) -> None:
    data = archive(
        [
            directory(".", mode=0o700),
            member("file", data=b"hello", mode=0o4755, owner=(1000, 1001), mtime=7),
            symlink("link", "../file"),
            member("null", tarfile.CHRTYPE, device=(1, 3), mode=0o666),
            member("disk", tarfile.BLKTYPE, device=(8, 300), mode=0o660),
            member("pipe", tarfile.FIFOTYPE),
        ],
        FORMATS[format_name],
    )
    source = read(data, tmp_path)
    entries = source.tree.by_path()
    assert entries[b""].mode == 0o700
    assert entries[b"file"] == Entry(
        path=b"file",
        kind=EntryKind.FILE,
        mode=0o4755,
        uid=1000,
        gid=1001,
        mtime_ns=7 * 10**9,
        size=5,
    )
    assert entries[b"link"] == Entry(
        path=b"link", kind=EntryKind.SYMLINK, mode=0o777, target=b"../file"
    )
    assert (entries[b"null"].major, entries[b"null"].minor) == (1, 3)
    assert (entries[b"disk"].major, entries[b"disk"].minor) == (8, 300)
    assert entries[b"pipe"].kind is EntryKind.FIFO
    assert contents(source) == {b"file": b"hello"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_compression_is_found(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    source = read(pack(archive([member("a", data=b"x" * 5000)])), tmp_path)
    assert contents(source) == {b"a": b"x" * 5000}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/etc/passwd", b"etc/passwd"),
        ("./etc/passwd", b"etc/passwd"),
        ("//etc///passwd", b"etc/passwd"),
        ("etc/./passwd", b"etc/passwd"),
    ],
)
def test_names_are_normalised(tmp_path: Path, name: str, path: bytes) -> None:
    assert paths(read(archive([member(name)]), tmp_path)) == [b"etc", path]


@pytest.mark.parametrize("name", ["..", "../a", "a/../b", "/../a", "a/.."])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    for data in (archive([member(name)]), archive([member("x"), hard_link("y", name)])):
        with pytest.raises(InvalidInputError, match=r"'\.\.'"):
            read(data, tmp_path)


ODD_NAMES = [
    b"a b",
    b"a\nb",
    b"a\\b'\"",
    b"\xff\xfe",
    b"x" * 255,
    b"-rf",
    "ünï".encode(),
    b"a=b",
    b"%41",
]


@pytest.mark.parametrize(
    ("format_name", "name"),
    [
        (format_name, name)
        for format_name in FORMATS
        for name in ODD_NAMES
        if len(name) <= 100 or format_name != "ustar"
    ],
)
def test_odd_names_are_kept_byte_for_byte(tmp_path: Path, format_name: str, name: bytes) -> None:
    text = os.fsdecode(name)
    members = [member(text, data=b"1"), symlink("s", text), hard_link("zz", text)]
    entries = read(archive(members, FORMATS[format_name]), tmp_path).tree.by_path()
    assert entries[b"s"].target == name
    assert entries[name].link_group == entries[b"zz"].link_group == 1


def test_a_path_of_4000_bytes_is_kept_and_a_longer_one_refused(tmp_path: Path) -> None:
    long = "/".join(["d" * 199] * 20)
    assert paths(read(archive([member(long)]), tmp_path))[-1] == long.encode()
    with pytest.raises(InvalidInputError, match="4095"):
        read(archive([member(long + "/" + "x" * 200)]), tmp_path)
    with pytest.raises(InvalidInputError, match="255"):
        read(archive([member("x" * 256)]), tmp_path)


def test_a_prefix_of_ustar_is_part_of_the_name(tmp_path: Path) -> None:
    name = "p" * 80 + "/" + "n" * 99
    assert paths(read(archive([member(name)], tarfile.USTAR_FORMAT), tmp_path))[-1] == name.encode()


def test_missing_parents_are_made(tmp_path: Path) -> None:
    source = read(archive([member("a/b/c")]), tmp_path)
    assert source.tree.by_path()[b"a/b"] == Entry(path=b"a/b", kind=EntryKind.DIRECTORY, mode=0o755)


def test_parents_may_come_after_their_children(tmp_path: Path) -> None:
    source = read(archive([member("a/b"), directory("a", mode=0o700)]), tmp_path)
    assert source.tree.by_path()[b"a"].mode == 0o700
    assert paths(source) == [b"a", b"a/b"]


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1700000000.123456789", 1700000000123456789),
        ("1700000000.1234567891", 1700000000123456789),
        ("0.000000001", 1),
        ("-0.5", -500000000),
        ("-1.25", -1250000000),
        ("9000000000", 9000000000 * 10**9),
        ("12.", 12 * 10**9),
    ],
)
def test_times_are_exact_to_the_nanosecond(tmp_path: Path, text: str, time_ns: int) -> None:
    data = archive([member("a", pax={"mtime": text})])
    assert only(read(data, tmp_path)).mtime_ns == time_ns


def test_times_before_1970_in_binary_fields(tmp_path: Path) -> None:
    data = archive([member("a", mtime=-5)], tarfile.GNU_FORMAT)
    assert only(read(data, tmp_path)).mtime_ns == -5 * 10**9


def test_large_numbers_of_gnu_and_pax(tmp_path: Path) -> None:
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = archive([member("a", owner=(2**32 - 2, 2**31))], tar_format)
        entry = only(read(data, tmp_path))
        assert (entry.uid, entry.gid) == (2**32 - 2, 2**31)


@pytest.mark.parametrize(
    "pax", [{"uid": str(2**32)}, {"gid": "-1"}, {"mtime": "1e9"}, {"mtime": "99999999999"}]
)
def test_numbers_out_of_range_name_the_member(tmp_path: Path, pax: dict[str, str]) -> None:
    with pytest.raises((InvalidInputError, CorruptError), match="'some-file'"):
        read(archive([member("some-file", pax=pax)]), tmp_path)


def test_xattrs_are_kept_as_bytes(tmp_path: Path) -> None:
    capability = bytes.fromhex("0100000200000000000000000000000000000000")
    records = [
        (b"SCHILY.xattr.user.z", b"a\n=b\0\xff"),
        (b"SCHILY.xattr.security.capability", capability),
        (b"SCHILY.xattr.user.empty", b""),
        (b"SCHILY.xattr.user.a%3Db%25", b"1"),
        (b"LIBARCHIVE.xattr.user.from%20bsd", b"aGk"),
        (b"SCHILY.xattr.trusted.overlay.opaque", b"y"),
    ]
    source = read(pax_member(records, raw_header(b"a")) + END, tmp_path)
    assert only(source).xattrs == (
        (b"security.capability", capability),
        (b"trusted.overlay.opaque", b"y"),
        (b"user.a=b%", b"1"),
        (b"user.empty", b""),
        (b"user.from bsd", b"hi"),
        (b"user.z", b"a\n=b\0\xff"),
    )


def test_a_global_header_lasts_and_a_local_one_wins_and_may_take_back(tmp_path: Path) -> None:
    records = pax_record(b"uid", b"7") + pax_record(b"comment", b"x")
    data = raw_header(b"g", b"g", len(records)) + padded(records)
    data += raw_header(b"a")
    data += pax_member([(b"uid", b"8")], raw_header(b"b"))
    data += pax_member([(b"uid", b"")], raw_header(b"c", uid=b"0000011\0"))
    source = read(data + END, tmp_path)
    assert [entry.uid for entry in source.tree] == [0, 7, 8, 9]


def test_old_directories_and_signed_checksums(tmp_path: Path) -> None:
    source = read(raw_header(b"d/", b"\0", magic=b"") + END, tmp_path)
    assert only(source).kind is EntryKind.DIRECTORY
    signed = bytearray(raw_header(b"\xff\xfe"))
    signed[148:156] = b"%06o\0 " % (int(signed[148:154], 8) - 512)
    assert only(read(bytes(signed) + END, tmp_path)).path == b"\xff\xfe"


def test_members_without_data_have_none_whatever_their_size_says(tmp_path: Path) -> None:
    data = raw_header(b"d", b"5", 4096) + raw_header(b"a", b"0", 1) + padded(b"x") + END
    assert paths(read(data, tmp_path)) == [b"a", b"d"]


def test_the_last_of_several_members_wins(tmp_path: Path) -> None:
    source = read(
        archive([member("a", data=b"1"), member("b"), member("a", data=b"22", mode=0o600)]),
        tmp_path,
    )
    assert paths(source) == [b"a", b"b"]
    assert source.tree.by_path()[b"a"].mode == 0o600
    assert contents(source)[b"a"] == b"22"


@pytest.mark.parametrize("last", [member("d", data=b"x"), symlink("d", "x")])
def test_what_replaces_a_directory_removes_its_children(tmp_path: Path, last: Member) -> None:
    source = read(archive([directory("d"), member("d/e/f"), member("d-"), last]), tmp_path)
    assert paths(source) == [b"d", b"d-"]
    assert b"d/e/f" not in source.contents


@pytest.mark.parametrize("first", [member("d", data=b"x"), symlink("d", "x")])
def test_a_directory_replaces_what_is_none(tmp_path: Path, first: Member) -> None:
    source = read(archive([first, directory("d"), member("d/f")]), tmp_path)
    assert paths(source) == [b"d", b"d/f"]
    assert set(source.contents) == {b"d/f"}


def test_a_directory_given_twice_keeps_its_children(tmp_path: Path) -> None:
    source = read(archive([directory("d"), member("d/f"), directory("d", 0o700)]), tmp_path)
    assert paths(source) == [b"d", b"d/f"]
    assert source.tree.by_path()[b"d"].mode == 0o700


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("usr/lib", b"usr/lib/x"),
        ("/usr/lib", b"usr/lib/x"),
        ("../../usr", b"usr/x"),
        (".", b"x"),
        ("made/new", b"made/new/x"),
    ],
)
def test_symlinks_on_the_way_are_followed_inside_the_tree(
    tmp_path: Path, target: str, place: bytes
) -> None:
    source = read(
        archive([directory("usr/lib"), symlink("lib", target), member("lib/x")]), tmp_path
    )
    assert source.tree.by_path()[b"lib"].kind is EntryKind.SYMLINK
    assert place in paths(source)
    assert set(source.contents) == {place}


def test_loops_of_symlinks_and_files_on_the_way_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'a/x'.*loop"):
        read(archive([symlink("a", "b"), symlink("b", "a"), member("a/x")]), tmp_path)
    with pytest.raises(InvalidInputError, match=r"'a/x'.*no directory"):
        read(archive([member("a"), member("a/x")]), tmp_path)
    with pytest.raises(InvalidInputError, match="root"):
        read(archive([symlink("/", "x")]), tmp_path)


LINKABLE: list[Member] = [
    member("a", data=b"data"),
    symlink("a", "target"),
    member("a", tarfile.FIFOTYPE),
    member("a", tarfile.CHRTYPE, device=(1, 3)),
    member("a", tarfile.BLKTYPE, device=(8, 0)),
]


@pytest.mark.parametrize("target", LINKABLE, ids=lambda target: target[0].type.decode())
def test_hard_links_of_all_kinds_share_one_inode(tmp_path: Path, target: Member) -> None:
    source = read(archive([target, hard_link("b", "a"), hard_link("d/c", "./b")]), tmp_path)
    entries = source.tree.by_path()
    names = [entries[path] for path in (b"a", b"b", b"d/c")]
    assert {msgspec.structs.replace(entry, path=b"") for entry in names} == {
        msgspec.structs.replace(names[0], path=b"")
    }
    assert names[0].link_group == 1
    if names[0].kind is EntryKind.FILE:
        assert contents(source) == {b"a": b"data", b"b": b"data", b"d/c": b"data"}
        assert len({source.contents[entry.path] for entry in names}) == 1


def test_a_name_that_is_replaced_leaves_its_inode_to_the_others(tmp_path: Path) -> None:
    members = [member("a", data=b"old"), hard_link("b", "a"), member("a", data=b"new")]
    source = read(archive(members), tmp_path)
    assert contents(source) == {b"a": b"new", b"b": b"old"}
    assert [entry.link_group for entry in source.tree] == [0, 0, 0]


def test_a_link_to_itself_is_the_file(tmp_path: Path) -> None:
    source = read(archive([member("a", data=b"x"), hard_link("a", "a")]), tmp_path)
    assert contents(source) == {b"a": b"x"}


@pytest.mark.parametrize("target", ["none", "d"])
def test_a_link_to_no_file_is_refused_by_name(tmp_path: Path, target: str) -> None:
    with pytest.raises(InvalidInputError, match="'the-link'"):
        read(archive([directory("d"), hard_link("the-link", target)]), tmp_path)


def test_null_devices_are_content(tmp_path: Path) -> None:
    entry = only(read(archive([member("w", tarfile.CHRTYPE, device=(0, 0))]), tmp_path))
    assert entry.kind is EntryKind.CHAR


def test_markers_are_files_outside_of_images(tmp_path: Path) -> None:
    source = read(archive([member("a/.wh..wh..opq"), member(".wh.b")]), tmp_path)
    assert paths(source) == [b".wh.b", b"a", b"a/.wh..wh..opq"]


TIB = 1 << 40
DATA = b"d" * 4096
AT = 1 << 39


def number(value: int) -> bytes:
    return b"\x80" + value.to_bytes(11, "big")


def sparse_old_gnu() -> bytes:
    """The map begins in the header and goes on in two blocks of its own, mostly empty."""
    rest = bytearray(b"ustar  \0".ljust(255, b"\0"))
    rest[482 - 257] = 1
    rest[483 - 257 : 495 - 257] = number(TIB)
    first = bytearray(512)
    first[504] = 1
    second = (number(AT) + number(4096) + number(TIB) + number(0)).ljust(512, b"\0")
    return raw_header(b"big", b"S", 4096, rest=bytes(rest)) + bytes(first) + second + DATA


def sparse_0_0() -> bytes:
    records = [
        (b"GNU.sparse.size", b"%d" % TIB),
        (b"GNU.sparse.numblocks", b"2"),
        (b"GNU.sparse.offset", b"%d" % AT),
        (b"GNU.sparse.numbytes", b"4096"),
        (b"GNU.sparse.offset", b"%d" % TIB),
        (b"GNU.sparse.numbytes", b"0"),
    ]
    return pax_member(records, raw_header(b"big", b"0", 4096), DATA)


def sparse_0_1() -> bytes:
    records = [
        (b"GNU.sparse.name", b"big"),
        (b"GNU.sparse.size", b"%d" % TIB),
        (b"GNU.sparse.map", b"%d,4096,%d,0" % (AT, TIB)),
    ]
    return pax_member(records, raw_header(b"GNUSparseFile.1/big", b"0", 4096), DATA)


def sparse_1_0() -> bytes:
    records = [
        (b"GNU.sparse.major", b"1"),
        (b"GNU.sparse.minor", b"0"),
        (b"GNU.sparse.name", b"big"),
        (b"GNU.sparse.realsize", b"%d" % TIB),
    ]
    data = padded(b"2\n%d\n4096\n%d\n0\n" % (AT, TIB)) + DATA
    header = raw_header(b"GNUSparseFile.1/big", b"0", 512 + 4096)
    return pax_member(records, header, data)


@pytest.mark.parametrize("make", [sparse_old_gnu, sparse_0_0, sparse_0_1, sparse_1_0])
def test_a_sparse_file_of_a_tebibyte_costs_its_data(
    tmp_path: Path, make: Callable[[], bytes]
) -> None:
    source = read(make() + raw_header(b"next") + END, tmp_path)
    entry = source.tree.by_path()[b"big"]
    assert entry.size == TIB
    content = source.contents[b"big"]
    assert isinstance(content, Spooled)
    assert [(offset, length) for offset, length, _ in content.runs] == [(AT, 4096)]
    assert os.path.getsize(content.path) == 4096
    assert paths(source) == [b"big", b"next"]


@pytest.mark.parametrize(
    ("sparse_map", "size"),
    [(b"4096,4096,0,4096", 8192), (b"0,4096,4096", 4096), (b"0,8192", 4096), (b"x,y", 0)],
)
def test_impossible_sparse_maps_are_corrupt(tmp_path: Path, sparse_map: bytes, size: int) -> None:
    records = [(b"GNU.sparse.size", b"1000000"), (b"GNU.sparse.map", sparse_map)]
    data = pax_member(records, raw_header(b"big", b"0", size), bytes(size)) + END
    with pytest.raises(CorruptError, match="'big'"):
        read(data, tmp_path)


def test_a_run_of_negative_length_is_corrupt(tmp_path: Path) -> None:
    numbers = [b"%011o\0" % 0, b"%011o\0" % 1024, b"%011o\0" % 1024, b"\xff" * 11 + b"\0"]
    area = b"".join(numbers).ljust(96, b"\0") + b"\0" + b"%011o\0" % 2000
    header = raw_header(b"big", b"S", 768, rest=b"ustar  \0" + bytes(121) + area)
    with pytest.raises(CorruptError, match="not in order"):
        read(header + bytes(1024) + END, tmp_path)


def test_a_map_longer_than_its_member_is_corrupt(tmp_path: Path) -> None:
    records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.realsize", b"1000")]
    for start in (b"1000000\n", b"1" * 512):
        data = pax_member(records, raw_header(b"big", b"0", 512), start) + END
        with pytest.raises(CorruptError, match="'big'"):
            read(data, tmp_path)


def test_long_zeros_are_not_stored(tmp_path: Path) -> None:
    data = b"a" * 1000 + bytes(3 << 20) + b"b"
    source = read(archive([member("z", data=data), member("empty")]), tmp_path)
    assert contents(source) == {b"z": data, b"empty": b""}
    content = source.contents[b"z"]
    assert os.path.getsize(content.path) < 1 << 19


def test_all_contents_lie_in_one_file(tmp_path: Path) -> None:
    members = [member(f"f{n}", data=b"%d" % n) for n in range(100)]
    source = read(archive(members), tmp_path / "made")
    assert len({content.path for content in source.contents.values()}) == 1
    assert contents(source)[b"f77"] == b"77"


WHOLE = archive([member("first", data=b"1" * 700), member("second", data=b"2" * 700)])


@pytest.mark.parametrize("cut", [100, 512 + 100, 512 + 1024 + 100, 512 + 1024 + 512 + 512])
def test_an_archive_cut_short_is_corrupt(tmp_path: Path, cut: int) -> None:
    with pytest.raises(CorruptError, match="too early"):
        read(WHOLE[:cut], tmp_path)


@pytest.mark.parametrize("cut", [512 + 1024, 2 * (512 + 1024)])
def test_an_archive_cut_between_members_is_corrupt_too(tmp_path: Path, cut: int) -> None:
    """So ends a pipe whose writer was killed."""
    with pytest.raises(CorruptError, match="cut short"):
        read(WHOLE[:cut], tmp_path)


@pytest.mark.parametrize("where", [512 + 1024, 512 + 1024 + 130, 512 + 1024 + 156])
def test_a_damaged_header_names_the_member_before(tmp_path: Path, where: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[where] ^= 0x20
    with pytest.raises(CorruptError, match="'first'"):
        read(bytes(damaged), tmp_path)


@pytest.mark.parametrize(
    "records",
    [b"9999 a=b\n", b"6 a=\n", b"abc", b"8 a=bcdef", b"-5 a=b\n", b"9" * 23 + b" a=b\n"],
)
def test_damaged_extended_headers_are_corrupt(tmp_path: Path, records: bytes) -> None:
    data = raw_header(b"x", b"x", len(records)) + padded(records) + raw_header(b"a") + END
    with pytest.raises(CorruptError):
        read(data, tmp_path)


def test_an_extended_header_without_member_or_end_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptError):
        read(raw_header(b"x", b"x", 0) + END, tmp_path)
    with pytest.raises(CorruptError):
        read(raw_header(b"x", b"x", 1 << 30) + END, tmp_path)


@pytest.mark.parametrize("data", [b"not a tar" * 100, b"\x7fELF" + bytes(2000), b"PK" * 600])
def test_other_files_are_no_archives(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="not a tar archive") as raised:
        read(data, tmp_path)
    assert "zstd" in (raised.value.hint or "")


def test_an_empty_stream_is_refused_and_an_empty_archive_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="empty"):
        read(b"", tmp_path)
    assert read(END, tmp_path).tree == Tree.of([])


def test_unknown_kinds_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'odd'.*b'M'"):
        read(raw_header(b"odd", b"M") + END, tmp_path)


def test_a_volume_label_is_no_entry(tmp_path: Path) -> None:
    assert paths(read(raw_header(b"label", b"V") + raw_header(b"a") + END, tmp_path)) == [b"a"]


def test_the_stream_is_read_to_its_end(tmp_path: Path) -> None:
    """The writer of a pipe is not stopped while it still writes padding."""
    stream = io.BytesIO(WHOLE + bytes(200_000))
    read_tar(stream, tmp_path)
    assert stream.read(1) == b""


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process can grow beyond 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [1 << 17, 5 << 20])
@pytest.mark.usefixtures("small_files")
def test_a_disk_that_takes_no_more_is_told_as_such(tmp_path: Path, size: int) -> None:
    data = archive([member("a", data=b"x" * size)])
    with pytest.raises(NoSpaceError, match=re.escape(str(tmp_path))) as raised:
        read(data, tmp_path)
    assert raised.value.hint


@settings(fewer, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees(changes=False))
def test_any_tree_comes_back_from_a_pax_archive(
    tmp_path: Path, drawn: tuple[Tree, Contents]
) -> None:
    tree, data = drawn
    tree = Tree.of(entry for entry in tree if entry.kind is not EntryKind.SOCKET)
    source = read(as_pax(tree, data), tmp_path)
    assert source.tree == Tree.of(msgspec.structs.replace(entry, digest=b"") for entry in tree)
    assert contents(source) == {
        entry.path: data[entry.path] for entry in tree if entry.kind is EntryKind.FILE
    }


_LETTERS = {
    EntryKind.DIRECTORY: b"5",
    EntryKind.FILE: b"0",
    EntryKind.SYMLINK: b"2",
    EntryKind.CHAR: b"3",
    EntryKind.BLOCK: b"4",
    EntryKind.FIFO: b"6",
}


def as_pax(tree: Tree, data: Contents) -> bytes:
    out = []
    first_names: dict[int, bytes] = {}
    for entry in tree:
        body = data.get(entry.path, b"")
        seconds, nanoseconds = divmod(abs(entry.mtime_ns), 10**9)
        sign = b"-" if entry.mtime_ns < 0 else b""
        records = [
            (b"path", entry.path or b"./"),
            (b"uid", b"%d" % entry.uid),
            (b"gid", b"%d" % entry.gid),
            (b"mtime", sign + b"%d.%09d" % (seconds, nanoseconds)),
            *((b"SCHILY.xattr." + name, value) for name, value in entry.xattrs),
        ]
        kind, link = _LETTERS[entry.kind], entry.target
        if entry.link_group and entry.link_group in first_names:
            kind, link, body = b"1", first_names[entry.link_group], b""
        first_names.setdefault(entry.link_group, entry.path)
        if link:
            records.append((b"linkpath", link))
        device = b"".join(b"\x80" + n.to_bytes(7, "big") for n in (entry.major, entry.minor))
        header = raw_header(
            b"short",
            kind,
            len(body),
            mode=b"%07o\0" % entry.mode,
            rest=b"ustar\x0000".ljust(72, b"\0") + device,
        )
        out.append(pax_member(records, header, body))
    return b"".join(out) + END
