"""The entry point.

Global options, the list of commands, and the one place where errors become exit codes.
"""

from __future__ import annotations

import errno
import gc
import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from dsec_layers import __version__
from dsec_layers.api.workbench import Workbench, default_home
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.errors import (
    DISK_FULL,
    CapabilityMissingError,
    DsecError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    StoreError,
)
from dsec_layers.registry import patience

_PROGRAM = "dsec-layers"
_COMPLETE = "_DSEC_LAYERS_COMPLETE"  # set by the shell that asks for completions
# Modules and large trees are many objects and no garbage: to look for some after every 700 new ones
# takes a fifth of the time of a build.
_GC_THRESHOLD = 50_000

# Where each command is; its module is imported when it runs, so that `run` does not wait for what
# only `build` needs.
_COMMANDS = {
    "build": ("build", "build"),
    "builder": ("builder", "builder"),
    "cat": ("looking", "cat"),
    "commit": ("commit", "commit"),
    "compose": ("making", "compose"),
    "copy": ("mirroring", "copy"),
    "daemon": ("daemon", "daemon"),
    "df": ("collecting", "df"),
    "diff": ("explaining", "diff"),
    "dive": ("dive", "dive"),
    "export": ("exporting", "export"),
    "gc": ("collecting", "gc"),
    "history": ("explaining", "history"),
    "import": ("making", "import_"),
    "inspect": ("looking", "inspect"),
    "key": ("signing", "key"),
    "ls": ("catalog", "list_"),
    "mount": ("mounting", "mount"),
    "plan": ("tracing", "plan"),
    "pull": ("moving", "pull"),
    "push": ("moving", "push"),
    "repack": ("collecting", "repack"),
    "report": ("tracing", "report"),
    "resolve": ("catalog", "resolve"),
    "run": ("mounting", "run"),
    "sbom": ("sbom", "sbom"),
    "search": ("catalog", "search"),
    "sign": ("signing", "sign"),
    "signatures": ("signing", "signatures"),
    "stats": ("looking", "stats"),
    "sync": ("mirroring", "sync"),
    "tag": ("catalog", "tag"),
    "tags": ("catalog", "tags"),
    "trace": ("tracing", "trace"),
    "tree": ("looking", "tree"),
    "umount": ("mounting", "umount"),
    "untag": ("catalog", "untag"),
    "upgrade": ("upgrade", "upgrade"),
    "verify": ("verify", "verify"),
    "why": ("explaining", "why"),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*_COMMANDS, *self.commands])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, attribute = _COMMANDS[cmd_name]
        found = getattr(importlib.import_module(f"dsec_layers.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found


@click.group(
    cls=_Commands,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=_PROGRAM)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="DSEC_HOME",
    default=default_home,
    show_default="$DSEC_HOME, /var/lib/dsec or ~/.local/share/dsec",
    help="Where this machine keeps its store, cache and mounts.",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    envvar="DSEC_STORES",
    metavar="URL",
    help="A further store to read from when the local one lacks something; may be repeated.",
)
@json_option
@click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "json", "quiet"]),
    default="auto",
    envvar="DSEC_PROGRESS",
    help="How to show what goes on, on standard error.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log every program started and mount made.")
@pass_context
def cli(
    context: Context,
    home: Path,
    stores: tuple[str, ...],
    progress: str,
    verbose: bool,
) -> None:
    """Build, store, move and lazily mount layered environments."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s", stream=sys.stderr)
    if home == Path():  # as an unset variable of a script gives it
        raise InvalidInputError("the home has no name", hint="write --home DIRECTORY")
    context.workbench = Workbench(home.absolute(), stores)
    context.output.progress = progress


@cli.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@pass_context
def completion(context: Context, shell: str) -> None:
    """Print the completion script of a shell, to be evaluated in its start file."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, _PROGRAM, _COMPLETE).source()
    context.output.result({"script": script}, lambda: script)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; the codes are those of `docs/errors.md`."""
    gc.set_threshold(_GC_THRESHOLD)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _interrupt)
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, _PROGRAM, _COMPLETE, instruction))
    status = _guarded(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # the interpreter would go through all that is left several times before it ends
    sys.exit(status)


class _Interrupted(BaseException):
    """A signal asks us to end. It is no Exception, so nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Unwind once: a second signal must not break what undoes mounts and removes files."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)
    patience.give_up()
    raise _Interrupted(number)


def _guarded(arguments: list[str]) -> int:
    context = Context(Workbench(default_home(), ()))
    try:
        return _invoke(arguments or ["--help"], context)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does: end in silence.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DsecError, OSError) as error:
        known = error if isinstance(error, DsecError) else _from_os_error(error)
        if isinstance(known, NoSpaceError):
            known.hint = known.hint or "free some space, or set --home to another disk"
        context.output.error(known)
        return known.exit_code
    except _Interrupted as error:
        name = signal.Signals(error.number).name
        context.output.failure("Interrupted", f"ended by {name}", None, 128 + error.number)
        return 128 + error.number
    except click.ClickException as error:
        context.output.failure("UsageError", error.format_message(), _usage(error), error.exit_code)
        return error.exit_code


def _invoke(arguments: list[str], context: Context) -> int:
    status = 0
    try:
        with cli.make_context(_PROGRAM, arguments, obj=context) as made:
            cli.invoke(made)
    except click.exceptions.Exit as end:
        status = end.exit_code
    sys.stdout.flush()  # here, where it is known what to do when nobody reads it
    return status


def _usage(error: click.ClickException) -> str | None:
    at = error.ctx if isinstance(error, click.UsageError) else None
    return f"{at.command_path} --help" if at else None


def _from_os_error(error: OSError) -> DsecError:
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{error.strerror or error}"
    if error.errno in DISK_FULL:
        return NoSpaceError(message)
    if error.errno in (errno.EPERM, errno.EACCES):
        return CapabilityMissingError(message, hint="run as root")
    if error.errno == errno.ENOENT:
        return NotFoundError(message)
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return InvalidInputError(message)
    return StoreError(message)
