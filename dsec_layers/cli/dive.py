"""`dive`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import click

from dsec_layers.api import dive as api
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size, table
from dsec_layers.model.reference import Reference

_COLOURS: Final = ("cyan", "yellow", "magenta", "green", "blue", "red")


@click.command(short_help="Show what each layer costs, and what higher layers hide of it.")
@click.argument("reference", type=ReferenceType())
@click.argument("path", default="/")
@click.option(
    "--depth",
    "-L",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="At most so many names deep.",
)
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, help="So many wasting paths."
)
@json_option
@pass_context
def dive(context: Context, reference: Reference, path: str, depth: int, worst: int) -> None:
    """Show what the layers of REFERENCE cost, and the tree at PATH by the layers that give it.

    \b
    ADDED, CHANGED, REMOVED   paths, against the layers below
    SIZE                      of the files that the layer holds
    WASTED                    of them, files that higher layers hide
    STORED                    its packs, some of which it may share with others
    #                         the layer that gives a path, or most of a directory

    Metadata is read, no data, and nothing is mounted.
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    found = api.dive(context.workbench, reference, path, depth=depth, worst=worst)
    context.output.result(found, lambda: "\n\n".join(_sections(found, _Screen.of_output())))


@dataclass(frozen=True, slots=True)
class _Screen:
    """Where the text goes: `width` in characters, None for any; whether it has colours."""

    width: int | None
    colours: bool

    @classmethod
    def of_output(cls) -> _Screen:
        if not sys.stdout.isatty():
            return cls(None, False)
        return cls(shutil.get_terminal_size().columns, not os.environ.get("NO_COLOR"))

    def line(self, text: str, layer: int | None = None) -> str:
        """A line cut to the width, in the colour of a layer if it is of one."""
        if self.width is not None and len(text) > self.width:
            text = text[: self.width - 1] + "…"
        if layer is None or not self.colours:
            return text
        return click.style(text, fg=_COLOURS[layer % len(_COLOURS)])


def _sections(found: api.Dive, screen: _Screen) -> Iterator[str]:
    columns = ("#", "ADDED", "CHANGED", "REMOVED", "SIZE", "WASTED", "STORED", "LAYER")
    rows = [
        (
            str(number),
            *map(str, (each.added, each.changed, each.removed)),
            *map(size, (each.size_bytes, each.wasted_bytes, each.stored_bytes)),
            printable(each.layer),
        )
        for number, each in enumerate(found.layers)
    ]
    yield _coloured(table(columns, rows, right=columns[:-1]), screen, lambda line: line)
    yield (
        f"{found.efficiency / 10:.1f} % of {size(found.size_bytes)} is seen, "
        f"{size(found.wasted_bytes)} is wasted"
    )
    if found.wasted:
        cells = [
            (size(each.bytes), str(each.copies), printable(each.path)) for each in found.wasted
        ]
        wasted = table(("WASTED", "COPIES", "PATH"), cells, right=("WASTED", "COPIES"))
        yield "\n".join(map(screen.line, wasted.split("\n")))
    layers = [node.layer for node in found.tree]
    nodes = [(size(each.size_bytes), str(each.layer), _name(each)) for each in found.tree]
    text = table(("SIZE", "#", "PATH"), nodes, right=("SIZE", "#"))
    yield _coloured(text, screen, lambda line: layers[line])


def _coloured(text: str, screen: _Screen, layer_of: Callable[[int], int]) -> str:
    """A table whose lines, but the first, are of layers."""
    head, *lines = text.split("\n")
    return "\n".join(
        [screen.line(head), *(screen.line(line, layer_of(at)) for at, line in enumerate(lines))]
    )


def _name(node: api.Node) -> str:
    """The whole path of the top, below it the last name behind two spaces for each level."""
    if not node.depth:
        return printable(node.path)
    name = node.path.rpartition("/")[2] + ("/" if node.is_directory else "")
    return "  " * node.depth + printable(name)
