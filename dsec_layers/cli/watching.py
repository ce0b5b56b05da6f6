"""`stats --watch`: a table that lives on a terminal, and a line for each interval elsewhere."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.api.watching import Interval, Rate, watch
from dsec_layers.cli.context import Context
from dsec_layers.cli.output import printable, size

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = ("LAYER", "MOUNTS", "READS/S", "READ/S", "HITS", "FETCHED/S", "IN FLIGHT", "ERRORS")


def show(context: Context, every_s: float, count: int | None) -> None:
    """Print intervals as they come, `count` of them or without end."""
    intervals = islice(watch(context.workbench, every_s), count)
    if context.output.as_json or not sys.stdout.isatty():
        for each in intervals:
            line = json.dumps(msgspec.to_builtins(each), sort_keys=True)
            sys.stdout.write((line if context.output.as_json else in_a_line(each)) + "\n")
            sys.stdout.flush()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=sys.stdout), auto_refresh=False) as live:
        for each in intervals:
            live.update(as_table(each), refresh=True)


def in_a_line(interval: Interval) -> str:
    """The total, for a log."""
    _, _, reads, read, hits, fetched, in_flight, errors = _cells(interval.total)
    troubled = "".join(f", {printable(url)} is in trouble" for url in interval.troubled)
    return (
        f"{reads} reads/s, {read}/s, {hits} hits, {fetched}/s fetched, {in_flight} in flight, "
        f"{errors} errors{troubled}"
    )


def as_table(interval: Interval) -> Table:
    """A line for each layer and the total; below it the stores that are in trouble."""
    from rich.table import Table
    from rich.text import Text

    troubled = "\n".join(f"{printable(url)} is in trouble" for url in interval.troubled)
    table = Table(box=None, pad_edge=False, caption=troubled or None, caption_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "LAYER" else "right", no_wrap=True)
    for rate in (*interval.layers, interval.total):
        table.add_row(*map(Text, _cells(rate)))
    return table


def _cells(rate: Rate) -> tuple[str, ...]:
    return (
        printable(rate.layer),
        str(len(rate.mounts)),
        f"{rate.reads_per_s:.0f}",
        size(int(rate.read_bytes_per_s)),
        "-" if rate.hit_rate is None else f"{rate.hit_rate:.0%}",
        size(int(rate.fetched_bytes_per_s)),
        str(rate.in_flight),
        str(rate.errors),
    )
