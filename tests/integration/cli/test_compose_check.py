"""`compose --check`, and what `compose` tells of the same."""

from dsec_layers.errors import InvalidInputError, NotFoundError
from tests.support.cli import BASE, Cli

TYPE = "toolkit/folder:1: /bin a directory in place of the "


def test_check(cli: Cli) -> None:
    cli.add("base/other:1", {"bin": "a file", "etc/conf": "x"})
    cli.add("toolkit/folder:1", {"bin/tool": "x"})
    words = ("compose", "base/other:1", "toolkit/folder:1")
    text = cli(*words, "--check")
    assert text.splitlines()[0].split() == ["SEVERITY", "RULE", "FINDING"]
    assert f"{TYPE}file of base/other:1" in text
    assert text.splitlines()[-1] == "1 error, 1 warning, 0 infos"
    document = cli.json(*words, "--check", "--deep")
    assert document["deep"]
    assert (document["findings"][0]["rule"], document["errors"]) == ("type", 1)
    strict = cli.run(*words, "--check", "--strict")
    assert strict.status == InvalidInputError.exit_code
    assert strict.text == text
    assert strict.error.startswith(f"1 error in this composition: {TYPE}")
    assert "env/e:1" not in cli.tags()


def test_compose_tells_and_can_refuse(cli: Cli) -> None:
    cli.add("base/other:1", {"bin": "a file", "etc/conf": "x"})
    cli.add("toolkit/folder:1", {"bin/tool": "x"})
    words = ("compose", "base/other:1", "toolkit/folder:1", "-t", "env/e:1")
    refused = cli.fails(InvalidInputError, *words, "--strict")
    assert f"note: error: {TYPE}" in refused.stderr
    cli.fails(NotFoundError, "inspect", "env/e:1")
    made = cli.run(*words)
    assert made.status == 0
    assert made.text.startswith("env/e:1 sha256:")
    notes = made.stderr.splitlines()
    assert [line.split(": ")[1] for line in notes] == ["error", "warning"]
    assert cli.run("--progress", "quiet", *words).stderr == ""


def test_many_notes_are_few_lines(cli: Cli) -> None:
    files = {f"f{number}": "x" for number in range(40)}
    cli.add("toolkit/a:1", files)
    cli.add("toolkit/b:1", dict.fromkeys(files, "other"))
    words = ("compose", BASE, "toolkit/a:1", "toolkit/b:1")
    lines = cli.run(*words, "-t", "env/e:1").stderr.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "note: 20 more: `dsec-layers compose --check` lists them"
    assert len(cli.json(*words, "--check")["findings"]) == 40


def test_options_that_do_not_go_together(cli: Cli) -> None:
    assert cli.run("compose", BASE).status == 2
    assert cli.run("compose", BASE, "-t", "env/e:1", "--deep").status == 2
