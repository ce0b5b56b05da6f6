"""The command line `dsec`: help, refusals, and what a start imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from dsec_runtime.cli.main import cli, main

ROOT = Path(__file__).parents[4]
Captured = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process; signals stay as they are."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.delenv("DSEC_EDGE", raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--home", str(tmp_path / "home"), *words])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def commands() -> dict[str, click.Command]:
    """Every command by its words."""
    found: dict[str, click.Command] = {}
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {sub}": each for sub, each in command.commands.items()}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help(name: str, run: Run) -> None:
    status, out, err = run(*name.split(), "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: dsec {name} ")
    assert all(len(line) <= 100 for line in out.splitlines())


def test_the_list_of_commands_is_cut_nowhere(run: Run) -> None:
    for group in ((), ("edge",)):
        assert "..." not in run(*group, "--help")[1].partition("\nCommands:\n")[2]


def test_every_option_has_help() -> None:
    for name, command in commands().items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("edge", "status"),
        ("run", "env/demo:v1", "--", "true"),
        ("exec", "abc", "--", "true"),
        ("stop", "abc"),
        ("cp", "a", "abc:/b"),
    ],
)
def test_without_an_edge_they_say_where_none_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("dsec_runtime.sdk.transport._FIRST_PAUSE_S", 100.0)  # no second try
    status, out, err = run(*words)
    assert (status, out) == (22, "")
    assert err.startswith(f"error: no edge answers at unix://{tmp_path}/home/run/edge.sock: ")
    assert "\nhint: `dsec edge` starts one; DSEC_EDGE names another\n" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "env/demo:v1"), "give a command after --, or --detach"),
        (("run", "-d", "-t", "env/demo:v1"), "--detach excludes --interactive and --tty"),
        (("exec", "-d", "-i", "abc", "true"), "--detach excludes --interactive and --tty"),
        (("run", "--memroy", "1G", "a/b:1"), "No such option '--memroy'. Did you mean '--memory'?"),
        (("stop",), "name sandboxes, or give --all"),
        (("stop", "--all", "abc"), "name sandboxes, or give --all"),
        (("cp", "a", "b"), "one of the two is SANDBOX:PATH, the other a path here"),
        (("cp", "a:b", "c:d"), "one of the two is SANDBOX:PATH, the other a path here"),
        (("edge", "--listen", "h:1"), "--listen needs --certificate and --key"),
        (("net", "abc", "--none", "--allow", "pypi"), "--none excludes --allow and --deny"),
    ],
)
def test_unfinished_lines(run: Run, words: tuple[str, ...], message: str) -> None:
    status, _, err = run(*words)
    assert (status, err.splitlines()[0]) == (2, f"error: {message}")


def test_a_terminal_and_an_object_exclude_each_other(run: Run) -> None:
    status, _, err = run("exec", "--json", "-t", "abc", "true")
    assert (status, "--json excludes --tty" in err) == (2, True)


def test_bad_names_are_told_before_anybody_is_asked(run: Run) -> None:
    for words in (("run", "not a reference", "--", "true"), ("--edge", "ftp://x", "ps")):
        assert run(*words)[0] == 3


def test_a_token_is_shown_once_and_kept_as_a_hash(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("edge", "token", "trainer")
    assert status == 0
    kept = (tmp_path / "home/edge/tokens").read_text()
    assert kept.startswith("trainer ")
    assert out.strip() not in kept
    assert run("edge", "token", "two words")[0] == 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    status, out, _ = run("completion", shell)
    assert status == 0
    assert f"_DSEC_COMPLETE={shell}_complete" in out


def test_a_client_imports_nothing_of_an_edge() -> None:
    program = "import sys, dsec_runtime.sdk, dsec_runtime.cli.running; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    heavy = ("uvicorn", "starlette", "dsec_runtime.edge", "dsec_runtime.tiers", "sqlite3")
    assert [name for name in heavy if name in loaded] == []
