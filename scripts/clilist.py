"""Writes docs/cli.md and docs/dsec.md from the command lines; --check says if they are current.

Run from the root of the repository: python -m scripts.clilist
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from dsec_layers.cli.main import cli as layers
from dsec_runtime.cli.main import cli as runtime
from scripts.written import write_or_check

DOCS = Path(__file__).resolve().parent.parent / "docs"
WRITTEN = "Written by `python -m scripts.clilist` from the commands themselves."
LAYERS_HEAD = f"""\
# The command line

{WRITTEN}

A result goes to standard output, with `--json` as one JSON document; progress, errors and hints go
to standard error. The exit status is one of [errors.md](errors.md), 128 and the number of the
signal that ended the command, or, for `run`, that of the command in the container: 127 for a
program that does not exist, 126 for one that cannot be run, 128 and its number for a signal.

An interrupt (SIGINT, SIGTERM, SIGHUP) undoes what is half done before it ends a command; more of
them change nothing about that. After a SIGKILL the next command does it.
"""
RUNTIME_HEAD = f"""\
# The command line of sandboxes

{WRITTEN}

Commands ask the edge that `--edge` or `$DSEC_EDGE` names, else the one of this machine. A result
goes to standard output, with `--json` as one JSON document; errors and hints go to standard error.
The exit status is one of [errors.md](errors.md), 128 and the number of the signal that ended the
command, or, for `run` and `exec`, that of the command in the sandbox: 127 for a program that does
not exist, 126 for one that cannot be run, 128 and its number for a signal.
"""


class Page(NamedTuple):
    """A file of docs/, and the program it is about."""

    file: str
    head: str
    program: str
    cli: click.Group


PAGES = (
    Page("cli.md", LAYERS_HEAD, "dsec-layers", layers),
    Page("dsec.md", RUNTIME_HEAD, "dsec", runtime),
)


def render(page: Page) -> str:
    """The text of a page."""
    context = click.Context(page.cli, info_name=page.program)
    sections = [_section(page.program, page.cli, context)]
    sections += [_section(name, each, context) for name, each in _commands(page.cli, context)]
    return page.head + "".join(sections)


def main(arguments: list[str]) -> int:
    """Write or check the pages."""
    wanted = {DOCS / page.file: render(page) for page in PAGES}
    return write_or_check(wanted, "clilist", arguments)


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, those of groups by their two words."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield name, command
            yield from ((f"{name} {sub}", each) for sub, each in _commands(command, context))
        else:
            yield name, command


def _section(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, parent=parent, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in filter(None, records)]
    table = ["", "| option | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join(["", f"## `{usage}`", "", _text(command.help or ""), *table, ""])


def _text(help_text: str) -> str:
    """Paragraphs that click keeps as they are, become blocks."""
    paragraphs = inspect.cleandoc(help_text).split("\n\n")
    return "\n\n".join(
        "```\n" + each.removeprefix("\b\n") + "\n```" if each.startswith("\b\n") else each
        for each in paragraphs
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
