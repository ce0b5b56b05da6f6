"""Files of the kernel's are read whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_runtime.resources import controlfiles


def test_a_list_longer_than_is_given_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlfiles, "_MOST_BYTES", 16)
    content = "".join(f"{pid}\n" for pid in range(1000))
    (tmp_path / "cgroup.procs").write_text(content)
    assert controlfiles.read(tmp_path / "cgroup.procs") == content


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    assert controlfiles.read(tmp_path / "none") == ""
    assert controlfiles.number(tmp_path / "none") == 0
    assert controlfiles.fields(tmp_path / "none") == {}
