"""Importing what is no archive, and reading from a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from dsec_layers.api import importing
from dsec_layers.api.importing import ImportOptions, import_
from dsec_layers.api.looking import cat, files, inspect
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError
from dsec_layers.model.reference import Reference
from tests.support.ocis import docker_archive
from tests.support.tars import archive, directory, member

NAME = Reference.parse("base/x:1")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path / "home")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)


def test_a_silent_pipe_is_not_waited_for_in_one_piece(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks a signal is seen, even one that came just before the first."""
    looks: list[float] = []

    def look(*arguments: object) -> tuple[list[int], list[int], list[int]]:
        looks.append(float(str(arguments[-1])))
        if len(looks) < 3:
            return [], [], []
        os.write(pipe[1], b"data")
        os.close(pipe[1])
        return [pipe[0]], [], []

    monkeypatch.setattr("select.select", look)
    assert importing._Descriptor(pipe[0]).read(100) == b"data"
    assert len(looks) == 3
    assert max(looks) < 1
    monkeypatch.undo()
    assert importing._Descriptor(pipe[0]).read(100) == b""


def test_sources(bench: Workbench, tmp_path: Path) -> None:
    tar = archive([directory("d"), member("d/f", data=b"data", mtime=1000)])
    (tmp_path / "tar").write_bytes(tar)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/f").write_bytes(b"here")
    import_(bench, str(tmp_path / "tar"), NAME)
    assert b"".join(cat(bench, NAME, "d/f")) == b"data"
    import_(bench, str(tmp_path / "root"), NAME)
    assert b"".join(cat(bench, NAME, "f")) == b"here"
    assert list((bench.home.root / "making").iterdir()) == []


def test_a_fifo_is_read_once(bench: Workbench, tmp_path: Path) -> None:
    """Such as a shell makes it for `<(mmdebstrap ...)`."""
    os.mkfifo(tmp_path / "fifo")
    tar = archive([member("f", data=b"data")])
    with ThreadPoolExecutor(1) as pool:
        pool.submit((tmp_path / "fifo").write_bytes, tar)
        import_(bench, str(tmp_path / "fifo"), NAME)
    assert b"".join(cat(bench, NAME, "f")) == b"data"


def test_times_are_clamped(bench: Workbench, tmp_path: Path) -> None:
    tar = archive([member("old", mtime=1000), member("new", mtime=3000)])
    (tmp_path / "tar").write_bytes(tar)
    row = import_(bench, str(tmp_path / "tar"), NAME, ImportOptions(epoch_s=2000))
    times = {entry.path: entry.mtime_ns for entry in files(bench, NAME)}
    assert (times[b"old"], times[b"new"]) == (1000 * 10**9, 2000 * 10**9)
    again = import_(bench, str(tmp_path / "tar"), NAME, ImportOptions(epoch_s=2000, workers=1))
    assert again.digest == row.digest


def test_what_cannot_be_imported(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cut").write_bytes(archive([member("f", data=bytes(2000))])[:1000])
    (tmp_path / "text").write_bytes(b"text" * 200)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InvalidInputError, match="standard input is closed"):
        import_(bench, "-", NAME)
    with pytest.raises(NotFoundError, match="does not exist"):
        import_(bench, str(tmp_path / "missing"), NAME)
    with pytest.raises(CorruptError, match="cut"):
        import_(bench, str(tmp_path / "cut"), NAME)
    with pytest.raises(InvalidInputError, match="text"):
        import_(bench, str(tmp_path / "text"), NAME)
    with pytest.raises(InvalidInputError, match="is not a base"):
        import_(bench, str(tmp_path / "cut"), Reference.parse("toolkit/x"))
    with pytest.raises(InvalidInputError, match="names a digest"):
        import_(bench, str(tmp_path / "cut"), Reference.parse(f"base/x:1@sha256:{'0' * 64}"))
    assert list(bench.local.tags()) == []
    assert list((bench.home.root / "making").iterdir()) == []


def test_an_image_through_a_pipe_is_imported_as_one(
    bench: Workbench, tmp_path: Path, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker save ... | dsec-layers import -`."""
    image = docker_archive([archive([member("f", data=b"data")])])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=lambda: pipe[0]))
    with ThreadPoolExecutor(1) as pool, os.fdopen(pipe[1], "wb") as writer:
        written = pool.submit(_write_all, writer, image)
        import_(bench, "-", NAME)
        written.result()
    assert [entry.path for entry in files(bench, NAME)] == [b"", b"f"]
    assert inspect(bench, NAME).run.cmd == ("sh",)


def _write_all(writer: BinaryIO, data: bytes) -> None:
    with writer:
        writer.write(data)
