"""What counts as a change while a directory is read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dsec_layers.sources import snapshot
from dsec_layers.sources.snapshot import Snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").write_text("one")
    (tmp_path / "d/link").symlink_to("file")
    return tmp_path


def take(root: Path) -> Snapshot:
    return snapshot.take(os.fsencode(root))


def keep_times(path: Path, change: Callable[[Path], object]) -> None:
    before = path.lstat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns), follow_symlinks=False)


def test_all_paths_are_in_it(root: Path) -> None:
    assert take(root).marks.keys() == {b"", b"d", b"d/file", b"d/link"}


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("two"),
        lambda path: path.chmod(0o600),
        lambda path: path.rename(path.with_name("other")).rename(path),
    ],
)
def test_a_change_is_seen_even_if_times_are_set_back(
    root: Path, change: Callable[[Path], object]
) -> None:
    before = take(root)
    keep_times(root / "d/file", change)
    assert b"d/file" in snapshot.changed(before, take(root), before.marks)


def test_a_directory_that_was_away_for_a_moment(root: Path) -> None:
    before = take(root)
    keep_times(root / "d", lambda path: path.rename(root / "e").rename(path))
    assert b"d" in snapshot.changed(before, take(root), before.marks)


def test_what_changed_just_now_is_not_settled(root: Path) -> None:
    now = take(root)
    assert b"d/file" in snapshot.unsettled(now, [b"d/file"])
    later = Snapshot(now.marks, now.started_ns + 10**9)
    assert snapshot.unsettled(later, now.marks) == []
    assert snapshot.unsettled(later, [b"new"]) == [b"new"]
