"""The entry point: errors to exit codes, help, and what a start imports."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from dsec_layers.cli.main import cli, main
from dsec_layers.errors import CapabilityMissingError, DsecError
from dsec_layers.linux import capabilities
from dsec_layers.linux.capabilities import Capability

ROOT = Path(__file__).parents[3]
Captured = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process; signals stay as they are."""
    monkeypatch.setattr("signal.signal", lambda *_: None)

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
    assert out.startswith(f"Usage: dsec-layers {name} ")
    assert all(len(line) <= 100 for line in out.splitlines())


def test_the_list_of_commands_is_cut_nowhere(run: Run) -> None:
    for group in ((), ("daemon",)):
        assert "..." not in run(*group, "--help")[1].partition("\nCommands:\n")[2]


def test_a_home_without_a_name(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main(["--home", "", "ls"])
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("error: the home has no name\n")


def test_every_option_has_help() -> None:
    for name, command in commands().items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, 9),
        (errno.EDQUOT, 9),
        (errno.EACCES, 7),
        (errno.EPERM, 7),
        (errno.ENOENT, 4),
        (errno.ENOTDIR, 3),
        (errno.EISDIR, 3),
        (errno.EIO, 8),
    ],
)
def test_errors_of_the_system(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr("dsec_layers.api.catalog.listing", fail)
    status, out, err = run("ls")
    assert (status, out) == (code, "")
    assert err.startswith(f"error: /some/file: {os.strerror(number)}\n")


@pytest.mark.parametrize("error", DsecError.__subclasses__())
def test_each_error_has_its_code(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: type[DsecError],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("it failed", hint="do better")

    monkeypatch.setattr("dsec_layers.api.catalog.listing", fail)
    assert run("ls") == (error.exit_code, "", "error: it failed\nhint: do better\n")


@pytest.mark.parametrize("lacking", [Capability.ROOT, Capability.FUSE, Capability.EROFS])
@pytest.mark.parametrize("words", [("mount",), ("umount", "/x"), ("daemon", "stop")])
def test_a_machine_that_cannot_mount(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    lacking: Capability,
    words: tuple[str, ...],
) -> None:
    def missing(capability: Capability) -> CapabilityMissingError | None:
        if capability is not lacking:
            return None
        return CapabilityMissingError(f"no {capability.value}", hint="get it")

    monkeypatch.setattr(capabilities, "missing", missing)
    assert run(*words) == (7, "", f"error: no {lacking.value}\nhint: get it\n")


def test_an_unfinished_command_line(run: Run) -> None:
    assert run()[0] == 2
    status, _, err = run("inspect")
    assert status == 2
    assert err == "error: Missing argument 'REFERENCE'.\nhint: dsec-layers inspect --help\n"


def test_no_words_give_help(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: dsec-layers ")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_only_the_first_signal_interrupts(
    number: signal.Signals, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is undone on the way out must not be interrupted by impatience."""
    undone = []

    def serve(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(number)
        finally:
            for each in SIGNALS:
                signal.raise_signal(each)
            undone.append(number)

    monkeypatch.setattr("dsec_layers.api.catalog.listing", serve)
    monkeypatch.setattr("dsec_layers.registry.patience._ending", threading.Event())
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        with pytest.raises(SystemExit) as ended:
            main(["ls"])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert ended.value.code == 128 + number
    assert undone == [number]
    assert capsys.readouterr().err == f"error: ended by {number.name}\n"


def test_an_ignored_signal_stays_ignored(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup and a shell's background jobs want it."""
    handled: list[int] = []
    monkeypatch.setattr("signal.signal", lambda number, _: handled.append(number))
    monkeypatch.setattr(
        "signal.getsignal",
        lambda number: signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL,
    )
    run("--help")
    assert handled == [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    status, out, _ = run("completion", shell)
    assert status == 0
    assert f"_DSEC_LAYERS_COMPLETE={shell}_complete" in out


def test_a_run_imports_only_what_it_needs() -> None:
    """Every module costs a lazy start its time; these cost the most."""
    heavy = (
        *("rich", "asyncio", "urllib.request", "multiprocessing", "importlib.metadata"),
        *("pyfastcdc", "dsec_layers.builder", "dsec_layers.sources"),
        "dsec_layers.registry.transfer",
    )
    program = "import sys, dsec_layers.cli.main, dsec_layers.cli.mounting; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert [name for name in heavy if name in loaded] == []
