"""What directories take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings

from dsec_layers.api import contents, importing
from dsec_layers.api.usage import Share, summed, usage
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import EntryKind, Tree
from tests.support.packed import pack_files
from tests.support.trees import trees

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")
NOISE = os.urandom(300_000)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    files = {"d/noise": NOISE, "d/e/again": NOISE, "text": b"a" * 100_000, "hole": bytes(50_000)}
    pack_files(made, BASE, files)
    pack_files(made, TOOL, {"d/f/x": b"x", "text": b"shorter"}, base=made.resolve(BASE))
    return made


def test_sizes_and_shares(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "read_chunk", lambda *_: pytest.fail("data was read"))
    rows = {row.path: row for row in usage(bench, BASE)}
    assert list(rows) == ["/", "/d", "/d/e"]
    assert [row.size_bytes for row in rows.values()] == [750_000, 600_000, 300_000]
    assert [row.files for row in rows.values()] == [4, 2, 1]
    assert rows["/d"].stored_bytes == pytest.approx(300_000, rel=0.05), "equal contents once"
    assert rows["/d/e"].stored_bytes + 300_000 > rows["/d"].stored_bytes
    packs = sum(pack.size for pack in bench.layer(bench.resolve(BASE)).manifest.packs)
    assert 0.95 * packs < rows["/"].stored_bytes <= packs


def test_of_a_composition(bench: Workbench) -> None:
    rows = {row.path: row for row in usage(bench, TOOL)}
    assert rows["/"].size_bytes == 600_000 + 50_000 + 7 + 1, "what is hidden does not count"
    assert rows["/d/f"].size_bytes == 1


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/one").write_bytes(b"12345")
    (root / "two").hardlink_to(root / "d/one")
    made = Workbench(tmp_path / "home")
    importing.import_(made, str(root), BASE)
    rows = {row.path: (row.files, row.size_bytes) for row in usage(made, BASE)}
    assert rows == {"/": (2, 5), "/d": (1, 5)}


def test_a_part_of_it(bench: Workbench) -> None:
    assert [row.path for row in usage(bench, TOOL, "d", 0)] == ["/d"]
    assert [row.path for row in usage(bench, TOOL, "/d/", 1)] == ["/d", "/d/e", "/d/f"]
    (file,) = usage(bench, TOOL, "text")
    assert (file.path, file.files, file.size_bytes) == ("/text", 1, 7)
    with pytest.raises(NotFoundError):
        usage(bench, TOOL, "none")


@settings(max_examples=60)
@given(trees(changes=False))
def test_a_directory_is_the_sum_of_what_is_in_it(drawn: tuple[Tree, object]) -> None:
    tree = drawn[0]
    folders = [entry.path for entry in tree if entry.kind is EntryKind.DIRECTORY]
    shares = [Share(e.path, e.size, e.size / 2) for e in tree if e.kind is EntryKind.FILE]
    rows = summed(b"", folders, shares)
    assert len(rows) == len(folders)
    assert [row.size_bytes for row in rows] == sorted(
        (
            sum(s.size_bytes for s in shares if not path or s.path.startswith(path + b"/"))
            for path in folders
        ),
        reverse=True,
    )
    assert summed(b"", folders, shares, 0) == [row for row in rows if row.path == "/"]
