"""Everything the command line prints.

Results on standard output, progress and errors on standard error.

Every command has one result. `--json` prints it as one JSON document, without it the command's own
text or table is printed. Programs read standard output only; nothing else is ever written there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
import msgspec

from dsec_layers.api.rows import LayerRow
from dsec_layers.errors import BuildError, DsecError


@dataclass(slots=True)
class Output:
    """Where and how the running command prints. `progress` is auto, plain, json or quiet."""

    as_json: bool = False
    progress: str = "auto"

    @property
    def live(self) -> bool:
        """Whether progress is drawn as a moving bar.

        On a terminal, unless another form was asked for.
        """
        return self.progress == "auto" and sys.stderr.isatty() and not self.as_json

    def result(self, value: object, text: Callable[[], str | None] = lambda: None) -> None:
        """Print the result of a command: `value` as JSON, or what `text` returns."""
        if self.as_json:
            said: str | None = json.dumps(msgspec.to_builtins(value), indent=2, sort_keys=True)
        else:
            said = text()
        if said:
            sys.stdout.write(said if said.endswith("\n") else said + "\n")

    def note(self, message: str) -> None:
        """One line about what goes on, for people."""
        if self.progress == "json":
            self.event({"event": "note", "message": message})
        elif self.progress != "quiet":
            sys.stderr.write(message + "\n")

    def event(self, event: dict[str, object]) -> None:
        """One progress event as a JSON line on standard error (`--progress json`)."""
        sys.stderr.write(json.dumps(event, sort_keys=True) + "\n")
        sys.stderr.flush()

    def error(self, error: DsecError) -> None:
        """One line for the error and one for the hint; the output of a failed step has its own."""
        lines = error.message.split("\n") if isinstance(error, BuildError) else [error.message]
        message = "\n".join(map(printable, lines))
        self.failure(type(error).__name__, message, error.hint, error.exit_code)

    def failure(self, name: str, message: str, hint: str | None, exit_code: int) -> None:
        """The same for what is no DsecError, such as a wrong option."""
        if self.as_json or self.progress == "json":
            self.event({"error": name, "message": message, "hint": hint, "exit_code": exit_code})
            return
        click.echo(click.style("error: ", "red", bold=True) + message, err=True)
        if hint:
            click.echo(click.style("hint: ", bold=True) + printable(hint), err=True)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> str:
    """A plain table without borders; columns named in `right` are right-aligned."""
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    )


def size(size_bytes: int) -> str:
    """A byte count for people, in decimal units as network and disk vendors count them."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def printable(text: str) -> str:
    """`text` on one line of a terminal; what could move the cursor is shown by its escape.

    Names from archives and stores may hold anything.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def layer_text(row: LayerRow) -> str:
    """What a command that made a layer or environment says of it."""
    return (
        f"{row.reference} {row.digest}\n"
        f"  {row.entries} entries, {size(row.content_bytes)}, {size(row.stored_bytes)} stored"
    )
