"""The entry point: global options and the list of commands."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from dsec_layers import __version__
from dsec_layers.api.workbench import Workbench, default_home
from dsec_layers.cli.beginning import SETTINGS, completion, home_option, verbose_option
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.cli.program import LazyGroup, run_program

_PROGRAM = "dsec-layers"

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


class _Commands(LazyGroup):
    package = "dsec_layers.cli"
    places = _COMMANDS


@click.group(
    cls=_Commands,
    no_args_is_help=False,
    context_settings=SETTINGS,
)
@click.version_option(__version__, prog_name=_PROGRAM)
@home_option("store, cache and mounts")
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
@verbose_option
@pass_context
def cli(
    context: Context,
    home: Path,
    stores: tuple[str, ...],
    progress: str,
) -> None:
    """Build, store, move and lazily mount layered environments."""
    context.workbench = Workbench(home, stores)
    context.output.progress = progress


cli.add_command(completion)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; the codes are those of `docs/errors.md`."""
    run_program(cli, _PROGRAM, Context(Workbench(default_home(), ())), arguments)
