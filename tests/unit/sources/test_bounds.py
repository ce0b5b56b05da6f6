"""Archives that claim too much, or say little in many words, are refused before they cost much."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.model.content import Source
from dsec_layers.sources import tar, tarheader, tarsparse, treebuilder
from tests.support.tars import (
    END,
    archive,
    member,
    padded,
    pax_member,
    pax_record,
    raw_header,
    read,
)


def paths(source: Source) -> list[bytes]:
    return [entry.path for entry in source.tree]


def test_extended_headers_are_bounded_altogether(tmp_path: Path) -> None:
    """Many of them before one member are no way around the bound of one."""
    header = pax_member([(b"comment", b"x" * (1 << 20))], b"")
    with pytest.raises(CorruptError, match="extended headers claim"):
        read(header * 33 + raw_header(b"a") + END, tmp_path)
    assert paths(read((header * 30 + raw_header(b"a")) + END, tmp_path)) == [b"", b"a"]


@pytest.mark.parametrize(
    "records", [[(b"k%d" % n, b"") for n in range(300)], [(b"k", b"x" * (1 << 20))]]
)
def test_global_headers_are_bounded(tmp_path: Path, records: list[tuple[bytes, bytes]]) -> None:
    body = b"".join(pax_record(*record) for record in records)
    data = raw_header(b"g", b"g", len(body)) + padded(body) + raw_header(b"a") + END
    with pytest.raises(CorruptError, match="global headers hold too much"):
        read(data, tmp_path)


def test_a_global_header_may_be_repeated_for_ever(tmp_path: Path) -> None:
    body = pax_record(b"comment", b"x" * 5000)
    data = (raw_header(b"g", b"g", len(body)) + padded(body) + raw_header(b"a")) * 500
    assert paths(read(data + END, tmp_path)) == [b"", b"a"]


@pytest.mark.parametrize("size", [2**63, 2**64, 10**20 - 1])
def test_a_file_larger_than_the_kernel_has_is_refused(tmp_path: Path, size: int) -> None:
    records = [(b"GNU.sparse.realsize", b"%d" % size), (b"GNU.sparse.map", b"")]
    with pytest.raises(InvalidInputError, match="larger than a file can be"):
        read(pax_member(records, raw_header(b"a")) + END, tmp_path)


def test_the_number_of_entries_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treebuilder, "_MAX_ENTRIES", 3)
    read(archive([member("a"), member("b"), member("b")]), tmp_path)
    with pytest.raises(InvalidInputError, match="b'c' is one of more than 3 entries"):
        read(archive([member("a"), member("b"), member("c")]), tmp_path)


def pax_map_of(numbers: bytes) -> bytes:
    records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")]
    records.append((b"GNU.sparse.realsize", b"1"))
    return pax_member(records, raw_header(b"f", size=len(numbers))) + padded(numbers) + END


def old_sparse(runs: int) -> bytes:
    pair = b"%011o\0%011o\0" % (0, 0)
    rest = b"ustar  \0".ljust(386 - 257, b"\0") + pair * 4 + b"\1" + b"%011o\0" % 1
    extension = (pair * 21 + b"\1").ljust(512, b"\0")
    return raw_header(b"f", b"S", rest=rest) + extension * (runs // 21) + END


@pytest.mark.parametrize(
    "data",
    [
        old_sparse(1000),
        pax_map_of(b"99999999\n" + b"0\n" * 1000),
        pax_member(
            [(b"GNU.sparse.realsize", b"1"), (b"GNU.sparse.map", b"0,0," * 1000 + b"0,0")],
            raw_header(b"f") + END,
        ),
    ],
)
def test_maps_of_sparse_files_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(tarsparse, "_MAX_RUNS", 100)
    with pytest.raises(CorruptError, match="a sparse map has more than"):
        read(data, tmp_path)


def test_extended_records_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarheader, "_MAX_RECORDS", 10)
    monkeypatch.setattr(tar, "_MAX_RECORDS", 15)
    few, many = [(b"a", b"")] * 8, [(b"a", b"")] * 11
    read(pax_member(few, raw_header(b"f")) + END, tmp_path)
    with pytest.raises(CorruptError, match="more than 10 records"):
        read(pax_member(many, raw_header(b"f")) + END, tmp_path)
    with pytest.raises(CorruptError, match="too many extended records"):
        read(pax_member(few, pax_member(few, raw_header(b"f"))) + END, tmp_path)


def test_paths_are_bounded_before_their_parents_are_made(tmp_path: Path) -> None:
    """A long name of many directories takes the square of its length."""
    for name in (b"a/" * 1_000_000, b"a/" * 2049):
        with pytest.raises(InvalidInputError, match="has a path longer than 4095 bytes") as caught:
            read(pax_member([(b"path", name)], raw_header(b"a")) + END, tmp_path)
        assert len(caught.value.message) < 5000
    links = [raw_header(b"l", b"2", link=b"d/" * 49 + b"m"), raw_header(b"d/" * 49 + b"m", b"5")]
    deep = pax_member([(b"path", b"l/" + b"e/" * 2000 + b"f")], raw_header(b"a"))
    with pytest.raises(InvalidInputError, match="has a path longer than 4095 bytes"):
        read(b"".join(links) + deep + END, tmp_path)


def test_all_paths_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treebuilder, "_MAX_PATHS_BYTES", 20)
    names = [b"aa/bb/c", b"aa", b"d" * 9]  # 2 + 5 + 7; gone again; 2 + 9
    kinds = [b"0", b"0", b"0"]
    members = [raw_header(name, kind) for name, kind in zip(names, kinds, strict=True)]
    assert paths(read(b"".join(members) + END, tmp_path)) == [b"", b"aa", b"d" * 9]
    with pytest.raises(InvalidInputError, match="is one of paths of more than 20 bytes"):
        read(b"".join([*members, raw_header(b"e" * 10)]) + END, tmp_path)


def test_directories_that_become_files_and_directories_again(tmp_path: Path) -> None:
    """Each time only what lies below is looked at, or this would take minutes."""
    many = [raw_header(b"many/%d" % number) for number in range(20_000)]
    again = [raw_header(b"d", b"5"), raw_header(b"d/e/f"), raw_header(b"d")] * 10_000
    last = [raw_header(b"d", b"5"), raw_header(b"d/g/h")]
    source = read(b"".join([*many, *again, *last]) + END, tmp_path)
    assert paths(source)[1:4] == [b"d", b"d/g", b"d/g/h"]
    assert len(source.tree) == 20_005
