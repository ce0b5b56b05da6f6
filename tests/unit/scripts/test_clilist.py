"""docs/cli.md says what the command line says."""

from __future__ import annotations

import re

import pytest

from dsec_layers.cli.main import _COMMANDS
from scripts import clilist


def test_the_page_is_current() -> None:
    assert clilist.PAGE.read_text() == clilist.render(), "run python -m scripts.clilist"


def test_every_command_is_on_the_page() -> None:
    listed = set(re.findall(r"^## `([a-z ]+?) [\[A-Z]", clilist.PAGE.read_text(), re.MULTILINE))
    wanted = {name for name in _COMMANDS if name not in ("builder", "daemon", "key", "trace")}
    wanted |= {"daemon status", "daemon stop", "daemon restart", "completion"}
    wanted |= {"daemon metrics", "daemon hold", "daemon serve"}
    wanted |= {"trace show", "trace merge", "trace push", "trace rm"}
    wanted |= {"builder du", "builder prune", "key generate"}
    assert listed == wanted


def test_an_old_page_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clilist.main(["--check"]) == 0
    monkeypatch.setattr(clilist, "HEAD", "other")
    assert clilist.main(["--check"]) == 1
    assert "python -m scripts.clilist" in capsys.readouterr().err
