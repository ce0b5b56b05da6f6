"""What stands at the head of each of our command lines: settings, global options, completion."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dsec_layers.api.workbench import default_home
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.cli.program import completion_script
from dsec_layers.errors import InvalidInputError

F = TypeVar("F", bound=Callable[..., object])

SETTINGS: Final[dict[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}


def home_option(kept: str) -> Callable[[F], F]:
    """`--home`, an absolute path in the end; `kept` says what is there."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="DSEC_HOME",
        default=default_home,
        show_default="$DSEC_HOME, /var/lib/dsec or ~/.local/share/dsec",
        callback=_absolute,
        help=f"Where this machine keeps its {kept}.",
    )


def verbose_option(command: F) -> F:
    """`--verbose` sends the log to standard error."""
    return click.option(
        "--verbose",
        "-v",
        is_flag=True,
        expose_value=False,
        callback=_log_all,
        help="Log every program started and mount made.",
    )(command)


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@pass_context
def completion(context: Context, shell: str) -> None:
    """Print the completion script of a shell, to be evaluated in its start file."""
    root = click.get_current_context().find_root()
    assert isinstance(root.command, click.Group)
    assert root.info_name
    script = completion_script(root.command, root.info_name, shell)
    context.output.result({"script": script}, lambda: script)


def _absolute(_context: click.Context, _parameter: click.Parameter, home: Path) -> Path:
    if home == Path():  # as an unset variable of a script gives it
        raise InvalidInputError("the home has no name", hint="write --home DIRECTORY")
    return home.absolute()


def _log_all(_context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s", stream=sys.stderr)
