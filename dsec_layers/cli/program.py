"""What our command lines share: late imports, signals, and errors that become exit codes."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import ClassVar, NoReturn

import click

from dsec_layers.cli.context import Context
from dsec_layers.errors import (
    DISK_FULL,
    CapabilityMissingError,
    DsecError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    StoreError,
)
from dsec_layers.linux import signals
from dsec_layers.registry import patience

# Modules and large trees are many objects and no garbage: to look for some after every 700 new ones
# takes a fifth of the time of a build.
_GC_THRESHOLD = 500_000
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_heard = threading.Event()


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed.

    `places` tells for each in which module of `package` it is, and as what.
    """

    package: ClassVar[str]
    places: ClassVar[Mapping[str, tuple[str, str]]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, sorted."""
        return sorted([*self.places, *self.commands])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported."""
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        module, attribute = self.places[cmd_name]
        found = getattr(importlib.import_module(f"{self.package}.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found


def run_program(
    cli: click.Group, name: str, context: Context, arguments: list[str] | None
) -> NoReturn:
    """Run a command line and exit; the codes are those of `docs/errors.md`."""
    gc.set_threshold(_GC_THRESHOLD)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _interrupt)
    variable = _completion_variable(name)
    if instruction := os.environ.get(variable):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, name, variable, instruction))
    with signals.heard(_ENDING, _heard):
        status = _guarded(cli, name, context, sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # the interpreter would go through all that is left several times before it ends
    sys.exit(status)


def completion_script(cli: click.Group, name: str, shell: str) -> str:
    """What a shell (bash, zsh or fish) evaluates to complete the words of this program."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    return found(cli, {}, name, _completion_variable(name)).source()


def _completion_variable(name: str) -> str:
    """Set by the shell that asks for completions."""
    return f"_{name.upper().replace('-', '_')}_COMPLETE"


class _Interrupted(BaseException):
    """A signal asks us to end. It is no Exception, so nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Unwind once: a second signal must not break what undoes mounts and removes files."""
    for each in _ENDING:
        signal.signal(each, lambda *_: None)
    _heard.set()
    patience.give_up()
    raise _Interrupted(number)


def _guarded(cli: click.Group, name: str, context: Context, arguments: list[str]) -> int:
    try:
        return _invoke(cli, name, context, arguments or ["--help"])
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


def _invoke(cli: click.Group, name: str, context: Context, arguments: list[str]) -> int:
    status = 0
    try:
        with cli.make_context(name, arguments, obj=context) as made:
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
