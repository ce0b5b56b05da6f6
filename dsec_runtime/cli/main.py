"""The entry point of `dsec`: global options and the list of commands."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from dsec_layers import __version__
from dsec_layers.api.workbench import Workbench, default_home
from dsec_layers.cli.beginning import SETTINGS, completion, home_option, verbose_option
from dsec_layers.cli.context import json_option
from dsec_layers.cli.program import LazyGroup, run_program
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
    context_settings=SETTINGS,
)
@click.version_option(__version__, prog_name=_PROGRAM)
@home_option("store, cache and sandboxes")
@click.option(
    "--edge",
    envvar="DSEC_EDGE",
    metavar="URL",
    help="The edge: unix:///PATH or https://HOST:PORT, the latter with a token in $DSEC_TOKEN."
    "  [env: DSEC_EDGE; default: the socket in the home]",
)
@json_option
@verbose_option
@pass_edge
def cli(context: EdgeContext, home: Path, edge: str | None) -> None:
    """Run sandboxes: environments in containers, by the edge of this or another machine."""
    context.workbench = Workbench(home)
    context.edge = edge


cli.add_command(completion)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; the codes are those of `docs/errors.md`."""
    run_program(cli, _PROGRAM, EdgeContext(Workbench(default_home())), arguments)
