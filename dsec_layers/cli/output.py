"""Everything the command line prints.

Results on standard output, progress and errors on standard error.

Every command has one result. `--json` prints it as one JSON document, without it the command's own
text or table is printed. Programs read standard output only; nothing else is ever written there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsec_layers.api.rows import LayerRow
from dsec_layers.errors import DsecError


@dataclass(slots=True)
class Output:
    """Where and how the running command prints. `progress` is auto, plain, json or quiet."""

    as_json: bool = False
    progress: str = "auto"
    out: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    err: Console = field(
        default_factory=lambda: Console(stderr=True, highlight=False, soft_wrap=True)
    )

    @property
    def live(self) -> bool:
        """Whether progress is drawn as a moving bar.

        On a terminal, unless another form was asked for.
        """
        return self.progress == "auto" and self.err.is_terminal and not self.as_json

    def result(
        self, value: object, text: Callable[[], Table | Text | str | None] | None = None
    ) -> None:
        """Print the result of a command: `value` as JSON, or what `text` returns."""
        if self.as_json:
            sys.stdout.write(
                json.dumps(msgspec.to_builtins(value), indent=2, sort_keys=True) + "\n"
            )
            return
        rendered = text() if text is not None else str(value)
        if isinstance(rendered, str):
            sys.stdout.write(rendered + ("" if rendered.endswith("\n") or not rendered else "\n"))
        elif rendered is not None:
            self.out.print(rendered)

    def note(self, message: str) -> None:
        """One line about what goes on, for people."""
        if self.progress == "json":
            self.event({"event": "note", "message": message})
        elif self.progress != "quiet":
            self.err.print(Text(message))

    def event(self, event: dict[str, object]) -> None:
        """One progress event as a JSON line on standard error (`--progress json`)."""
        sys.stderr.write(json.dumps(event, sort_keys=True) + "\n")
        sys.stderr.flush()

    def error(self, error: DsecError) -> None:
        """One line for the error and one for the hint."""
        if self.as_json or self.progress == "json":
            self.event(
                {
                    "error": type(error).__name__,
                    "message": error.message,
                    "hint": error.hint,
                    "exit_code": error.exit_code,
                }
            )
            return
        self.err.print(Text.assemble(("error: ", "bold red"), error.message))
        if error.hint:
            self.err.print(Text.assemble(("hint: ", "bold"), error.hint))


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> Table:
    """A plain table without borders; columns named in `right` are right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def size(size_bytes: int) -> str:
    """A byte count for people, in decimal units as network and disk vendors count them."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def layer_text(row: LayerRow) -> str:
    """What a command that made a layer or environment says of it."""
    return (
        f"{row.reference} {row.digest}\n"
        f"  {row.entries} entries, {size(row.content_bytes)}, {size(row.stored_bytes)} stored"
    )
