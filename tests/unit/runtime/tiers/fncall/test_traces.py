"""Folders are emptied as far as that is worth it; what changed in a folder is seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.tiers.fncall import traces
from dsec_runtime.tiers.fncall.traces import TooMuchError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "it").mkdir()
    fd = os.open(tmp_path / "it", os.O_RDONLY)
    yield fd
    os.close(fd)


def test_all_is_removed_and_nothing_beyond(tmp_path: Path, folder: int) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    inside = tmp_path / "it"
    (inside / "link").symlink_to(outside)
    (inside / "a/b").mkdir(parents=True)
    (inside / "a/b/file").write_text("x")
    (inside / "a/b").chmod(0)
    os.mkfifo(inside / "pipe")
    assert traces._remove_all(folder, 10, 0) == 5
    assert list(inside.iterdir()) == []
    assert (outside / "file").exists()


def test_too_many_and_too_deep_are_left(tmp_path: Path, folder: int) -> None:
    for number in range(6):
        (tmp_path / "it" / str(number)).touch()
    with pytest.raises(TooMuchError):
        traces._remove_all(folder, 5, 0)
    (tmp_path / "it" / "/".join("d" * 40)).mkdir(parents=True)
    with pytest.raises(TooMuchError):
        traces._remove_all(folder, 1000, 0)


@pytest.mark.parametrize("change", ["write", "mode", "name", "removed", "back"])
def test_no_change_of_a_file_goes_unseen(tmp_path: Path, change: str) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    os.utime(file, ns=(5, 5))
    before = tuple(traces._files(tmp_path))
    match change:
        case "write":
            file.write_text("two")
        case "mode":
            file.chmod(0o600)
        case "name":
            file.rename(tmp_path / "other")
        case "removed":
            file.unlink()
        case "back":
            file.write_text("two")
            file.write_text("one")
    if file.exists():
        os.utime(file, ns=(5, 5))
    assert tuple(traces._files(tmp_path)) != before


def test_sockets_are_those_of_the_namespace() -> None:
    text = "sockets: used 3\nTCP: inuse 1 orphan 0 tw 2 alloc 9 mem 1\nUDP: inuse 0 mem 0\n"
    assert traces._sockets(text) == ("3", "2")
