"""The entry point of `dsec`: global options and the list of commands."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import NoReturn

import click

from dsec_layers import __version__
from dsec_layers.api.workbench import Workbench, default_home
from dsec_layers.cli.context import json_option
from dsec_layers.cli.program import LazyGroup, completion_script, run_program
from dsec_layers.errors import InvalidInputError
from dsec_runtime.cli.context import EdgeContext, pass_edge

_PROGRAM = "dsec"

# Where each command is; its module is imported when it runs.
_COMMANDS = {
    "cp": ("copying", "cp"),
    "doctor": ("doctor", "doctor"),
    "edge": ("edge", "edge"),
    "exec": ("running", "exec_"),
    "fncall": ("fncall", "fncall"),
    "fork": ("living", "fork"),
    "logs": ("looking", "logs"),
    "net": ("living", "net"),
    "pause": ("living", "pause"),
    "ps": ("looking", "ps"),
    "resume": ("living", "resume"),
    "run": ("running", "run"),
    "snapshot": ("living", "snapshot"),
    "stats": ("looking", "stats"),
    "stop": ("living", "stop"),
}


class _Commands(LazyGroup):
    package = "dsec_runtime.cli"
    places = _COMMANDS


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
    help="Where this machine keeps its store, cache and sandboxes.",
)
@click.option(
    "--edge",
    envvar="DSEC_EDGE",
    metavar="URL",
    help="The edge: unix:///PATH or https://HOST:PORT, the latter with a token in $DSEC_TOKEN."
    "  [env: DSEC_EDGE; default: the socket in the home]",
)
@json_option
@click.option("--verbose", "-v", is_flag=True, help="Log every program started and mount made.")
@pass_edge
def cli(context: EdgeContext, home: Path, edge: str | None, verbose: bool) -> None:
    """Run sandboxes: environments in containers, by the edge of this or another machine."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s", stream=sys.stderr)
    if home == Path():  # as an unset variable of a script gives it
        raise InvalidInputError("the home has no name", hint="write --home DIRECTORY")
    context.workbench = Workbench(home.absolute())
    context.edge = edge


@cli.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@pass_edge
def completion(context: EdgeContext, shell: str) -> None:
    """Print the completion script of a shell, to be evaluated in its start file."""
    script = completion_script(cli, _PROGRAM, shell)
    context.output.result({"script": script}, lambda: script)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; the codes are those of `docs/errors.md`."""
    run_program(cli, _PROGRAM, EdgeContext(Workbench(default_home())), arguments)
