"""Folders for work: gone with it, or swept by the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.api.workfolder import work_folder


def test_it_is_gone_afterwards(tmp_path: Path) -> None:
    with work_folder(tmp_path / "home", "x") as folder:
        assert folder.parent == tmp_path / "home" / "making"
        assert list(folder.iterdir()) == []
        (folder / "half").mkdir()
    assert list(folder.parent.iterdir()) == []


def test_it_is_gone_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), work_folder(tmp_path, "x"):
        raise KeyError
    assert list((tmp_path / "making").iterdir()) == []


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "making" / "x-dead"
    (left / "half").mkdir(parents=True)
    with work_folder(tmp_path, "y") as mine, work_folder(tmp_path, "y") as other:
        assert mine != other
        assert not left.exists()
        assert mine.is_dir(), "what is locked is not swept"
