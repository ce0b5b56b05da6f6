"""`sbom`: to standard output, to a file, with notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dsec_layers.api.workbench import Workbench
from dsec_layers.cli.main import main
from dsec_layers.model.reference import Reference
from tests.support.packed import pack_files

Run = Callable[..., tuple[int, str, str]]
BASE = "base/b:1"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    files = {
        "node_modules/a/package.json": b'{"name":"a","version":"1"}',
        "lib/apk/db/installed": b"P:x\n",
    }
    pack_files(Workbench(tmp_path / "home"), Reference.parse(BASE), files)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--home", str(tmp_path / "home"), *words])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_to_standard_output_and_to_a_file(run: Run, tmp_path: Path) -> None:
    status, out, err = run("sbom", BASE)
    assert status == 0
    assert json.loads(out)["bomFormat"] == "CycloneDX"
    assert err.startswith("note: base/b (")
    assert "/lib/apk/db/installed a apk package has no usable version" in err
    path = tmp_path / "sbom.json"
    status, said, _ = run("--progress", "quiet", "sbom", BASE, "-o", str(path))
    assert (status, said) == (0, f"{path}: 1 packages\n")
    assert path.read_text() == out
    assert json.loads(run("sbom", BASE, "--json")[1]) == json.loads(out)


def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    status, out, err = run("sbom", BASE, "-o", str(tmp_path / "none/sbom.json"))
    assert (status, out) == (4, "")
    assert "No such file or directory" in err
