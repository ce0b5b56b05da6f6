from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsec_layers.builder.caches import Caches
from dsec_layers.cli.main import main
from dsec_layers.errors import InvalidInputError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with Caches(tmp_path / "builder/caches").use("pip", "shared", lambda data: None):
        return tmp_path


def run(home: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["--home", str(home), "builder", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().out


def test_usage_and_removal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(home, capsys, "du")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["KIND", "cache"]
    assert out.splitlines()[1].endswith("pip")
    assert "in all" in out
    assert run(home, capsys, "prune", "--unused-for", "1")[1].startswith("0 ")
    assert run(home, capsys, "prune", "--keep", "1G")[1].startswith("0 ")
    assert "would be removed" in run(home, capsys, "prune", "--dry-run")[1]
    (row,) = json.loads(run(home, capsys, "prune", "--json")[1])
    assert (row["kind"], row["title"]) == ("cache", "pip")
    assert json.loads(run(home, capsys, "du", "--json")[1]) == []


def test_a_size_that_is_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = run(home, capsys, "prune", "--keep", "much")
    assert status == InvalidInputError.exit_code
