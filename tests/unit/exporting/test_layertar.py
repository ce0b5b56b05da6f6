"""A layer as a tar archive: read by our own reader, and by Python's."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from dsec_layers.errors import InvalidInputError
from dsec_layers.exporting.layertar import SPARSE_FROM_BYTES, FileData, write_layer
from dsec_layers.exporting.tarheader import file_header, member_header
from dsec_layers.model.content import Spooled
from dsec_layers.model.tree import ROOT, Entry, EntryKind, Tree
from dsec_layers.sources.tar import TarReader
from tests.support.exports import Drawn, data_in, exportable_trees, without_digests
from tests.support.profiles import fewer
from tests.support.tars import contents as contents_of
from tests.support.tars import read
from tests.support.trees import Contents

_FOLDER = Entry(
    path=b"",
    kind=EntryKind.DIRECTORY,
    mode=0o7777,
    uid=2**32 - 2,
    gid=2**21,
    mtime_ns=-1_500_000_001,
)


def archive(tree: Tree, contents: Contents) -> bytes:
    out = io.BytesIO()
    write_layer(tree, data_in(contents), out.write)
    return out.getvalue()


def file(path: bytes, size: int = 0) -> Entry:
    return Entry(path=path, kind=EntryKind.FILE, mode=0o644, size=size)


@fewer
@given(exportable_trees())
def test_what_is_written_is_read(drawn: Drawn) -> None:
    tree, contents = drawn
    with tempfile.TemporaryDirectory() as folder:
        data = archive(tree, contents)
        source = read(data, Path(folder), oci=True)
        assert list(source.tree) == without_digests(tree)
        assert contents_of(source) == contents
    assert data == archive(tree, contents)
    assert len(data) % 512 == 0


@fewer
@given(exportable_trees(changes=False))
def test_another_reader_sees_the_same(drawn: Drawn) -> None:
    tree, contents = drawn
    with tarfile.open(fileobj=io.BytesIO(archive(tree, contents)), errors="surrogateescape") as tar:
        members = tar.getmembers()
        assert [_raw(member.name) for member in members] == [entry.path or b"." for entry in tree]
        for member, entry in zip(members, tree, strict=True):
            assert (member.mode, member.uid, member.gid) == (entry.mode, entry.uid, entry.gid)
            assert member.mtime == pytest.approx(entry.mtime_ns / 1e9)
            if member.issym():
                assert _raw(member.linkname) == entry.target
            if member.isfile():
                extracted = tar.extractfile(member)
                assert extracted is not None
                assert extracted.read() == contents[entry.path]


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def test_large_numbers_and_long_names(tmp_path: Path) -> None:
    names = [b"n" * 99, b"n" * 100, b"n" * 101, b"n" * 255, b"\xff" * 200]
    deep = [b"/".join([b"d" * 200] * depth) for depth in range(1, 20)]
    folders = [msgspec.structs.replace(_FOLDER, path=path) for path in deep]
    tree = Tree.of([*folders, *map(file, names), file(deep[-1] + b"/x")])
    assert without_digests(read(archive(tree, {e.path: b"" for e in tree}), tmp_path).tree) == list(
        tree
    )


def test_sizes_beyond_octal() -> None:
    size = 9 << 30
    assert tarfile.TarInfo.frombuf(file_header(b"n", size), "utf-8", "strict").size == size
    header = io.BytesIO(member_header(b"n", b"0", file(b"n"), size=size))
    member = next(iter(TarReader(header, name="t")))
    assert member.size == size
    assert b"19 size=9663676416\n" in header.getvalue()


def test_records_of_all_lengths_count_themselves() -> None:
    for length in (*range(60, 110), *range(940, 1000), *range(9940, 10_000)):
        entry = msgspec.structs.replace(file(b"n"), xattrs=((b"user.%=", b"v" * length),))
        member = next(iter(TarReader(io.BytesIO(member_header(b"n", b"0", entry)), name="t")))
        assert member.xattrs == entry.xattrs


@pytest.mark.parametrize("runs", [(), ((0, 5),), ((4096, 8192), (1 << 39, 4096))])
def test_holes_stay_holes(tmp_path: Path, runs: tuple[tuple[int, int], ...]) -> None:
    size = 1 << 40
    done: list[int] = []
    out = io.BytesIO()
    pieces = (b"x" * length for _, length in runs)
    write_layer(
        [ROOT, file(b"a", size), file(b"b")],
        lambda entry: FileData(runs, pieces) if entry.size else FileData((), iter(())),
        out.write,
        done.append,
    )
    assert len(out.getvalue()) < 32 << 10
    assert sum(done) == size
    source = read(out.getvalue(), tmp_path, oci=True)
    assert source.tree.by_path()[b"a"].size == size
    content = source.contents[b"a"]
    assert isinstance(content, Spooled)
    assert tuple((at, length) for at, length, _ in content.runs) == runs
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        names = {member.name: member for member in tar}
    assert names["a"].issparse()
    assert names["a"].size == size


def test_few_zeros_are_written_for_readers_without_sparse_files() -> None:
    data = bytes(8192) + b"x" + bytes(SPARSE_FROM_BYTES - 8192)
    tree = Tree.of([file(b"f", len(data))])
    with tarfile.open(fileobj=io.BytesIO(archive(tree, {b"f": data}))) as tar:
        assert not tar.getmember("f").issparse()
        extracted = tar.extractfile("f")
        assert extracted is not None
        assert extracted.read() == data


def test_names_that_mean_deletions_are_refused() -> None:
    tree = Tree.of([file(b".wh.a")])
    with pytest.raises(InvalidInputError, match=r"/\.wh\.a cannot be in an OCI image"):
        archive(tree, {b".wh.a": b""})


def test_a_socket_only_hides_what_it_hid(tmp_path: Path) -> None:
    tree = Tree.of([Entry(path=b"s", kind=EntryKind.SOCKET, mode=0o600)])
    out = io.BytesIO()
    assert write_layer(tree, data_in({}), out.write) == [b"s"]
    read_back = read(out.getvalue(), tmp_path, oci=True).tree
    assert list(read_back)[1:] == [Entry(path=b"s", kind=EntryKind.WHITEOUT)]


def test_a_whiteout_of_a_name_that_leaves_no_room(tmp_path: Path) -> None:
    tree = Tree.of([Entry(path=b"n" * 255, kind=EntryKind.WHITEOUT)])
    assert read(archive(tree, {}), tmp_path, oci=True).tree == tree


def test_the_opaque_marker_comes_before_what_is_in_the_directory() -> None:
    folder = Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755, opaque=True)
    with tarfile.open(
        fileobj=io.BytesIO(archive(Tree.of([folder, file(b"d/!")]), {b"d/!": b""}))
    ) as t:
        assert t.getnames() == [".", "d", "d/.wh..wh..opq", "d/!"]
