from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.chunks import content as module
from dsec_layers.chunks.content import (
    ContentReader,
    data_runs,
    hash_content,
    read_whole,
    scan_bytes,
)
from dsec_layers.errors import CorruptError
from dsec_layers.model.content import LocalFile, Spooled
from dsec_layers.model.tree import sparse_content_hasher
from tests.support import trees


def local(path: Path) -> LocalFile:
    return LocalFile(os.fsencode(path))


def spool(data: bytes, cuts: list[int], path: Path) -> Spooled:
    """`data` in a spool file; every other stretch between `cuts` is left out when it is zeros."""
    stored = bytearray(b"other contents before")
    runs = []
    for number, (start, end) in enumerate(pairwise([0, *cuts, len(data)])):
        if start != end and (number % 2 == 0 or any(data[start:end])):
            runs.append((start, end - start, len(stored)))
            stored += data[start:end] + b"and between"
    path.write_bytes(stored)
    return Spooled(os.fsencode(path), tuple(runs))


@given(data=trees.file_contents())
def test_runs_and_digest_are_those_of_the_model(data: bytes) -> None:
    assert list(data_runs(data)) == trees.data_runs(data)
    assert scan_bytes(data).digest == trees.content_digest(data)


def test_a_content_of_zeros_is_one_hole() -> None:
    assert data_runs(bytes(4097)) == ()
    assert scan_bytes(bytes(4097)).digest == sparse_content_hasher(4097, []).digest()
    assert scan_bytes(b"").digest == blake3.blake3(b"").digest()


@given(data=st.data())
def test_reading_in_pieces_gives_the_same(
    data: st.DataObject, folder: Path, monkeypatch_pieces: None
) -> None:
    plain = data.draw(trees.file_contents())
    path = folder / "file"
    trees.write_sparse(os.fsencode(path), plain)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(plain)), max_size=5)))
    for content in (local(path), spool(plain, cuts, folder / "spool")):
        assert read_whole(content, len(plain)) == plain
        with ContentReader(content, len(plain)) as reader:
            scan = reader.scan()
            assert scan == scan_bytes(plain)
            stored = b"".join(plain[start : start + length] for start, length in scan.runs)
            assert b"".join(reader.stream(scan.runs)) == stored
            assert b"".join(reader.stream([(0, len(plain))])) == plain


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contents")


@pytest.fixture(scope="module")
def monkeypatch_pieces() -> object:
    """Pieces of two blocks, so that small contents span several."""
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "PIECE_BYTES", 8192)
    yield
    patch.undo()


def test_a_large_file_is_hashed_without_being_read_whole(tmp_path: Path) -> None:
    data = os.urandom(module.READ_WHOLE_BYTES + 5)
    (tmp_path / "file").write_bytes(data)
    digest = hash_content(local(tmp_path / "file"), len(data))
    assert digest == blake3.blake3(data).digest()


def test_a_terabyte_of_holes_costs_its_data_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.seek(2**39)
        file.write(b"x" * 4096)
        file.truncate(2**40)
    with ContentReader(local(path), 2**40) as reader:
        scan = reader.scan()
    assert scan.runs == ((2**39, 4096),)
    hasher = sparse_content_hasher(2**40, scan.runs)
    hasher.update(b"x" * 4096)
    assert scan.digest == hasher.digest()


@pytest.mark.parametrize("size", [4, 6, module.READ_WHOLE_BYTES + 1])
def test_a_file_of_another_length_is_named(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(CorruptError, match="file changed while"):
        hash_content(local(tmp_path / "file"), size)


def test_a_file_that_changes_between_the_passes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1" * 9000)
    with ContentReader(local(path), 9000) as reader:
        runs = reader.scan().runs
        path.write_bytes(b"2" * 9000)
        os.utime(path, ns=(1, 1))
        with pytest.raises(CorruptError, match="file changed while"):
            list(reader.stream(runs))


def test_a_file_cut_short_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1" * 9000)
    with ContentReader(local(path), 9000) as reader:
        os.truncate(path, 100)
        with pytest.raises(CorruptError, match="file changed while"):
            list(reader.stream([(0, 9000)]))


def test_neither_links_nor_pipes_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="link"):
        read_whole(local(tmp_path / "link"), 5)
    with pytest.raises(CorruptError, match="pipe changed while"):
        read_whole(local(tmp_path / "pipe"), 5)
