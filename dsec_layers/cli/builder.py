"""`builder du` and `prune`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from dsec_layers.api import buildcache
from dsec_layers.api.buildcache import BuildCacheRow
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.cli.output import size, table
from dsec_layers.cli.sizes import SizeType

_TITLE_LENGTH = 60


@click.group("builder", no_args_is_help=False, short_help="Look after what builds leave behind.")
def builder() -> None:
    """Look after the step cache, and the caches of RUN --mount=type=cache."""


_store_option = click.option(
    "--store", "url", metavar="URL", help="Of the steps that builds put there by --cache-to."
)


@builder.command(short_help="Show what steps and caches take on disk.")
@_store_option
@json_option
@pass_context
def du(context: Context, url: str | None) -> None:
    """Show what steps and caches take on disk, what was used last first."""
    rows = buildcache.usage(context.workbench, url)
    context.output.result(rows, lambda: _text(rows, "in all"))


@builder.command(short_help="Remove steps and caches.")
@click.option(
    "--unused-for",
    "unused_h",
    type=click.FloatRange(0),
    metavar="HOURS",
    help="Only what no build has used for so long.",
)
@click.option(
    "--keep",
    "keep_bytes",
    type=SizeType(),
    default=0,
    show_default=False,
    help="Keep so much of what was used last, such as 20G.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@_store_option
@json_option
@pass_context
def prune(
    context: Context, unused_h: float | None, keep_bytes: int, dry_run: bool, url: str | None
) -> None:
    """Remove steps and caches; without options all that no running build uses.

    dsec-layers builder prune --unused-for 168 --keep 20G

    In a store names are removed: `gc` takes the data.
    """
    rows = buildcache.prune(
        context.workbench,
        url,
        unused_s=None if unused_h is None else unused_h * 3600,
        keep_bytes=keep_bytes,
        dry_run=dry_run,
    )
    context.output.result(rows, lambda: _text(rows, "would be removed" if dry_run else "removed"))


def _text(rows: Sequence[BuildCacheRow], what: str) -> str:
    total = f"{size(sum(row.size_bytes for row in rows))} {what}"
    if not rows:
        return total
    lines = [
        (row.kind, size(row.size_bytes), _time(row.used_s), row.title[:_TITLE_LENGTH])
        for row in rows
    ]
    return table(("KIND", "SIZE", "USED", "WHAT"), lines, right=("SIZE",)) + f"\n{total}"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "-"
