"""docs/cli.md and docs/dsec.md say what the command lines say."""

from __future__ import annotations

import re

import pytest

from dsec_layers.cli.main import _COMMANDS
from dsec_runtime.cli.main import _COMMANDS as RUNTIME_COMMANDS
from scripts import clilist


def commands_of(name: str) -> set[str]:
    text = (clilist.DOCS / name).read_text()
    return set(re.findall(r"^## `([a-z ]+?) [\[A-Z]", text, re.MULTILINE))


@pytest.mark.parametrize("page", clilist.PAGES)
def test_the_page_is_current(page: clilist.Page) -> None:
    text = (clilist.DOCS / page.file).read_text()
    assert text == clilist.render(page), "run python -m scripts.clilist"


def test_every_command_of_sandboxes_is_on_its_page() -> None:
    assert commands_of("dsec.md") >= {*RUNTIME_COMMANDS, "edge token", "edge status", "completion"}


def test_every_command_is_on_the_page() -> None:
    listed = commands_of("cli.md")
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
    pages = [page._replace(head="other") for page in clilist.PAGES]
    monkeypatch.setattr(clilist, "PAGES", pages)
    assert clilist.main(["--check"]) == 1
    assert "python -m scripts.clilist" in capsys.readouterr().err
