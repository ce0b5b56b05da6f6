"""`gc`."""

from __future__ import annotations

import click

from dsec_layers.api import collecting
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.cli.output import size
from dsec_layers.cli.progress import meter
from dsec_layers.cli.spans import SpanType
from dsec_layers.registry.collect import Rules


@click.command(short_help="Remove what nothing needs from a store.")
@click.argument("url", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--grace", type=SpanType(), default="24h", help="Spare what is younger.  [default: 24h]"
)
@click.option(
    "--keep-untagged",
    type=SpanType(),
    default="0",
    help="Spare layers and environments untagged for less than this.  [default: the grace]",
)
@json_option
@pass_context
def gc(
    context: Context, url: str | None, dry_run: bool, grace: float, keep_untagged: float
) -> None:
    """Remove what no tag, lease or mount leads to, from the local store or the one at URL.

    It runs beside everything else: what is being pushed, built, tagged or mounted stays. Spans are
    written 90s, 10m, 24h or 7d.

    dsec-layers gc threefs:///mnt/3fs --keep-untagged 7d --dry-run
    """
    rules = Rules(grace_s=grace, keep_untagged_s=keep_untagged, dry_run=dry_run)
    with meter(context.output, "gc") as shown:
        found = collecting.gc(context.workbench, url, rules, shown.add)
    did = "would be removed" if dry_run else "removed"
    context.output.result(
        found,
        lambda: (
            f"{size(found.bytes)} in {found.blobs} blobs {did}\n"
            f"{size(found.young_bytes)} in {found.young_blobs} more may go later"
        ),
    )
