"""Writes docs/cli.md from the command line itself; --check only says whether it is current.

Run from the root of the repository: python -m scripts.clilist
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dsec_layers.cli.main import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """\
# The command line

Written by `python -m scripts.clilist` from the commands themselves.

A result goes to standard output, with `--json` as one JSON document; progress, errors and hints go
to standard error. The exit status is one of [errors.md](errors.md), 128 and the number of the
signal that ended the command, or, for `run`, that of the command in the container: 127 for a
program that does not exist, 126 for one that cannot be run, 128 and its number for a signal.

An interrupt (SIGINT, SIGTERM, SIGHUP) undoes what is half done before it ends a command; more of
them change nothing about that. After a SIGKILL the next command does it.
"""


def render() -> str:
    """The page."""
    context = click.Context(cli, info_name="dsec-layers")
    sections = [_section("dsec-layers", cli, context)]
    sections += [_section(name, each, context) for name, each in _commands(cli, context)]
    return HEAD + "".join(sections)


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    if arguments != ["--check"]:
        PAGE.write_text(render())
        return 0
    if PAGE.read_text() == render():
        return 0
    print(f"{PAGE} is out of date: run python -m scripts.clilist", file=sys.stderr)
    return 1


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, those of groups by their two words."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
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
