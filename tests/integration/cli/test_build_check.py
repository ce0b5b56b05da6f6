"""`build --check`, and what a build says of its Layerfile."""

from __future__ import annotations

import json

import pytest

from dsec_layers.errors import InvalidInputError, NotFoundError
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.overlay, pytest.mark.oci]

TEXT = f"LAYER base x\nFROM {BASE} AS Build\nCOPY . /src\nCMD run it\n"


def write(cli: Cli, text: str) -> str:
    folder = cli.folder / "context"
    folder.mkdir(exist_ok=True)
    (folder / "Layerfile").write_text(text)
    return str(folder)


def test_a_check_carries_out_nothing(cli: Cli) -> None:
    folder = write(cli, TEXT)
    said = cli("build", "--check", folder).splitlines()
    assert said[0] == "2 warnings"
    assert said[1].startswith(f"{folder}/Layerfile:2: StageNameCasing: ")
    assert said[2] == f"    FROM {BASE} AS Build"
    document = cli.json("build", "--check", folder)
    assert document["steps"] == 1
    assert [it["rule"] for it in document["findings"]] == ["StageNameCasing", "JSONArgsRecommended"]
    assert cli.tags() == [BASE]
    assert not (cli.home / "builder").exists()


def test_what_is_wrong_is_an_error(cli: Cli) -> None:
    folder = write(cli, "# check=error=true\n" + TEXT)
    for words in (("--check",), ()):
        ran = cli.run("build", *words, folder)
        assert ran.status == InvalidInputError.exit_code
        assert "Layerfile:3: StageNameCasing: " in ran.error
        assert "(and 1 more)" in ran.error
    cli.fails(InvalidInputError, "build", "--check", write(cli, TEXT + "CPY a b\n"))
    cli.fails(NotFoundError, "build", "--check", write(cli, TEXT.replace(BASE, "base/none")))
    assert cli.tags() == [BASE]


@pytest.mark.parametrize("words", [("--check",), ()])
def test_what_is_asked_is_checked_by_both(cli: Cli, words: tuple[str, ...]) -> None:
    folder = write(cli, TEXT)
    missing = f"more={cli.folder}/missing"
    cli.fails(NotFoundError, "build", *words, folder, "--build-context", missing)
    cli.fails(InvalidInputError, "build", *words, folder, "-t", "base/y:1", "--name", "z")
    cli.fails(NotFoundError, "build", *words, f"{folder}/none", "-f", f"{folder}/Layerfile")


def test_a_build_warns_and_makes_the_same(cli: Cli) -> None:
    folder = write(cli, TEXT)
    (cli.folder / "context/.dockerignore").write_text("Layerfile\n.dockerignore\n")
    ran = cli.run("--progress", "plain", "build", folder, "-t", "base/x:1", "--epoch", "0")
    assert ran.status == 0
    assert ran.stderr.splitlines()[-5:][0] == "2 warnings"
    skipping = write(cli, "# check=skip=all\n" + TEXT)
    quiet = cli.run("--progress", "json", "build", skipping, "-t", "base/x:2", "--epoch", "0")
    assert '"warning"' not in quiet.stderr
    cli("build", write(cli, TEXT), "-t", "base/x:3", "--epoch", "0", "--no-cache")
    digests = [cli.json("inspect", f"base/x:{tag}")["digest"] for tag in (1, 3)]
    assert digests[0] == digests[1]
    told = cli.run("--progress", "json", "build", folder, "-t", "base/x:4")
    events = [json.loads(line) for line in told.stderr.splitlines()]
    assert [it["rule"] for it in events if it["event"] == "warning"] == [
        "StageNameCasing",
        "JSONArgsRecommended",
    ]
