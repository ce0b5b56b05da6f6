"""Progress on standard error: a bar on a terminal, lines of text or JSON elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dsec_layers.cli.output import Output, size

if TYPE_CHECKING:
    from dsec_layers.registry.transfer import Event

_LINE_EVERY_S = 2.0


class Meter:
    """Counts bytes, or things, of one piece of work; safe to call from several threads."""

    def __init__(self, show: Callable[[int, int | None], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self.done_bytes = 0
        self.total_bytes: int | None = None

    def add(self, count_bytes: int) -> None:
        """So many more bytes are done."""
        with self._lock:
            self.done_bytes += count_bytes
            self._show(self.done_bytes, self.total_bytes)

    def count(self, done: int, total: int) -> None:
        """So many of so many things are done."""
        with self._lock:
            self.done_bytes, self.total_bytes = done, total
            self._show(done, total)

    def fetch(self, count_bytes: int, total_bytes: int) -> None:
        """So many more bytes of a whole are done."""
        self.total_bytes = total_bytes
        self.add(count_bytes)

    def transfer(self, event: Event) -> None:
        """Follow a push or pull."""
        from dsec_layers.registry.transfer import Moved, Planned

        if isinstance(event, Planned):
            self.total_bytes = event.total_bytes
            self.add(event.skipped_bytes)
        elif isinstance(event, Moved):
            self.add(event.bytes)


@contextlib.contextmanager
def meter(output: Output, title: str, *, unit: str = "") -> Iterator[Meter]:
    """Show the bytes of a piece of work until the block ends, or things whose plural is `unit`."""
    if output.live:
        with _bar(title, unit) as made:
            yield made
    elif output.progress in ("plain", "json"):
        made = Meter(_lines(output, title, unit))
        yield made
        if output.progress == "json" and made.done_bytes:
            # A program wants to know the whole, however fast it went.
            _event(output, title, made.done_bytes, made.total_bytes)
    else:
        yield Meter(lambda _done, _total: None)


@contextlib.contextmanager
def _bar(title: str, unit: str) -> Iterator[Meter]:
    """A bar that appears with the first byte: before, the steps of a build are shown."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        *(() if unit else (TransferSpeedColumn(),)),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(title, start=False, total=None, amount="")

    def show(done: int, total: int | None) -> None:
        if not progress.live.is_started:
            progress.start_task(task)  # its clock and speed leave the steps before it out
        progress.update(task, completed=done, total=total, amount=_amount(done, total, unit))
        progress.start()

    try:
        yield Meter(show)
    finally:
        progress.stop()


def _amount(done: int, total: int | None, unit: str) -> str:
    if unit:
        return f"{done} of {total} {unit}"
    return size(done) + (f" of {size(total)}" if total else "")


def _lines(output: Output, title: str, unit: str) -> Callable[[int, int | None], None]:
    """At most one line every two seconds."""
    last = time.monotonic()

    def show(done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last < _LINE_EVERY_S:
            return
        last = time.monotonic()
        if output.progress == "json":
            _event(output, title, done, total)
        else:
            output.note(f"{title}: {_amount(done, total, unit)}")

    return show


def _event(output: Output, title: str, done: int, total: int | None) -> None:
    output.event({"event": "progress", "title": title, "done": done, "total": total})
