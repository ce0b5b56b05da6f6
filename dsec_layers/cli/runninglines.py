"""What runs now, as lines at the bottom of a terminal, each with the time it has taken."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text


class RunningLines:
    """Lines that are there while something runs, and other lines that stay above them."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._begun: dict[int, tuple[str, float]] = {}
        self._live: Live | None = None

    def begin(self, number: int, text: str) -> None:
        """Show a line."""
        self._begun[number] = text, time.monotonic()
        if self._live is None:
            self._live = Live(
                get_renderable=self._lines,
                console=self._console,
                transient=True,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.refresh()

    def end(self, number: int) -> None:
        """Take a line away; with the last one the terminal is as it was."""
        self._begun.pop(number, None)
        if not self._begun:
            self.stop()
        elif self._live is not None:
            self._live.refresh()

    def above(self, text: str) -> None:
        """A line that stays."""
        # Written as it is: a terminal wraps long lines itself, and may then join them when copied.
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def stop(self) -> None:
        """Take all lines away."""
        self._begun.clear()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _lines(self) -> Table:
        now = time.monotonic()
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        for text, begun in list(self._begun.values()):
            grid.add_row(Text(text, style="bold"), f"{now - begun:.0f} s")
        return grid
