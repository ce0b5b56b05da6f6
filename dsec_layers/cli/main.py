"""The entry point.

Global options, the list of commands, and the one place where errors become exit codes.
"""

from __future__ import annotations

import errno
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
from dsec_layers.cli.context import Context, pass_context
from dsec_layers.errors import CapabilityMissingError, DsecError, NoSpaceError, StoreError

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


# Where each command is; its module is imported when it runs, so that `run` does not wait for what
# only `build` needs.
_COMMANDS = {
    "build": ("build", "build"),
    "cat": ("looking", "cat"),
    "compose": ("making", "compose"),
    "daemon": ("daemon", "daemon"),
    "import": ("making", "import_"),
    "inspect": ("looking", "inspect"),
    "ls": ("looking", "list_"),
    "mount": ("mounting", "mount"),
    "pull": ("moving", "pull"),
    "push": ("moving", "push"),
    "rm": ("looking", "remove"),
    "run": ("mounting", "run"),
    "stats": ("looking", "stats"),
    "tree": ("looking", "tree"),
    "umount": ("mounting", "umount"),
    "verify": ("verify", "verify"),
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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="dsec-layers")
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
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    as_json: bool,
    progress: str,
    verbose: bool,
) -> None:
    """Build, store, move and lazily mount layered environments."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s", stream=sys.stderr)
    context.workbench = Workbench(home.absolute(), stores)
    context.output.as_json = as_json
    context.output.progress = progress


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell, to be evaluated in its start file."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise CapabilityMissingError(f"no completion for {shell}")
    click.echo(found(cli, {}, "dsec-layers", "_DSEC_LAYERS_COMPLETE").source())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; the codes are those of `docs/errors.md`."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_guarded(sys.argv[1:] if arguments is None else arguments))


def _guarded(arguments: list[str]) -> int:
    context = Context(Workbench(default_home(), ()))
    try:
        status = cli.main(arguments, prog_name="dsec-layers", obj=context, standalone_mode=False)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does: end in silence.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DsecError, OSError) as error:
        known = error if isinstance(error, DsecError) else _from_os_error(error)
        context.output.error(known)
        return known.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return status if isinstance(status, int) else 0


def _from_os_error(error: OSError) -> DsecError:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(
            f"{where}{error.strerror}", hint="free some space, or set --home to another disk"
        )
    if error.errno in (errno.EPERM, errno.EACCES):
        return CapabilityMissingError(f"{where}{error.strerror}", hint="run as root")
    return StoreError(f"{where}{error.strerror or error}")


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(EXIT_TERMINATED)
