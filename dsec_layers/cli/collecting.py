"""`gc`, `df` and `repack`."""

from __future__ import annotations

import click

from dsec_layers.api import accounting, collecting, repacking
from dsec_layers.api.workfolder import work_folder
from dsec_layers.cli.catalog import in_option
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size, table
from dsec_layers.cli.progress import meter
from dsec_layers.cli.spans import SpanType
from dsec_layers.model.reference import Reference
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
@click.option(
    "--steps-unused",
    type=SpanType(),
    help="Also forget results of build steps not used for this.  [default: keep them]",
)
@json_option
@pass_context
def gc(
    context: Context,
    url: str | None,
    dry_run: bool,
    grace: float,
    keep_untagged: float,
    steps_unused: float | None,
) -> None:
    """Remove what no tag, lease or mount leads to, from the local store or the one at URL.

    It runs beside everything else: what is being pushed, built, tagged or mounted stays. Spans are
    written 90s, 10m, 24h or 7d.

    dsec-layers gc threefs:///mnt/3fs --keep-untagged 7d --dry-run
    """
    rules = Rules(grace_s=grace, keep_untagged_s=keep_untagged, dry_run=dry_run)
    with meter(context.output, "gc") as shown:
        found = collecting.gc(
            context.workbench, url, rules, steps_unused_s=steps_unused, progress=shown.add
        )
    did = "would be removed" if dry_run else "removed"
    context.output.result(
        found,
        lambda: (
            f"{size(found.bytes)} in {found.blobs} blobs {did}\n"
            f"{size(found.young_bytes)} in {found.young_blobs} more may go later"
            + (f"\n{found.steps} results of steps forgotten" if found.steps else "")
        ),
    )


@click.command(short_help="Show what layers, names and kinds take in a store.")
@click.argument("url", required=False)
@click.option(
    "--by",
    type=click.Choice(["layer", "name", "kind"]),
    default="name",
    help="What a line stands for.  [default: name]",
)
@json_option
@pass_context
def df(context: Context, url: str | None, by: str) -> None:
    """Show what is in the local store, or the one at URL, and for whom.

    \b
    FILES   the sizes of the files, each layer once
    STORED  the blobs that belong to it
    UNIQUE  those of them that belong to nothing else
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    found = accounting.space(context.workbench.store(url))
    shares = {"layer": found.layers, "name": found.names, "kind": found.kinds}[by]
    context.output.result(found, lambda: _space(found, shares, by))


@click.command(short_help="Write layers anew that use little of their packs.")
@click.argument("references", nargs=-1, required=True, type=ReferenceType())
@in_option
@click.option(
    "--below",
    type=click.IntRange(1, 100),
    default=50,
    help="Packs of which all tags use less than so many percent.  [default: 50]",
)
@click.option(
    "--by-trace",
    is_flag=True,
    help="Put together what runs of one layer or environment read first, in the local store.",
)
@click.option(
    "--tag", "-t", type=ReferenceType(), help="With --by-trace: leave the tag, and set this one."
)
@json_option
@pass_context
def repack(
    context: Context,
    references: tuple[Reference, ...],
    url: str | None,
    below: int,
    by_trace: bool,
    tag: Reference | None,
) -> None:
    """Write anew what REFERENCES use of packs that are mostly unused, and move their tags.

    The files and the tree digest stay the same, the layer digest does not: environments, layers
    built on the old one, signatures and pinned references go on needing it. Where nothing does,
    `gc` frees the old packs.
    """
    bench = context.workbench
    if by_trace:
        if url or len(references) != 1:
            raise click.UsageError("--by-trace takes one reference of the local store")
        _rearrange(context, references[0], tag)
        return
    if tag is not None:
        raise click.UsageError("--tag goes with --by-trace")
    with work_folder(bench.home.root, "repack") as work:
        done = repacking.repack(bench.store(url), references, work, below / 100)
    lines = [
        f"{each.reference} {each.after}\n  "
        + (
            f"{size(each.written_bytes)} written in place of {size(each.dropped_bytes)}"
            if each.after != each.before
            else "unchanged"
        )
        for each in done
    ]
    context.output.result(done, lambda: "\n".join(lines))


def _rearrange(context: Context, reference: Reference, tag: Reference | None) -> None:
    from dsec_layers.api.rearranging import rearrange

    done = rearrange(context.workbench, reference, tag)
    context.output.result(
        done,
        lambda: (
            f"{done.reference} {done.after}\n"
            f"  {size(done.written_bytes)} written for {len(done.layers)} layers"
        ),
    )


def _space(found: accounting.Space, shares: tuple[accounting.Share, ...], by: str) -> str:
    columns = (by.upper(), "FILES", "STORED", "UNIQUE")
    rows = [
        (
            printable(share.name),
            size(share.logical_bytes),
            size(share.stored_bytes),
            size(share.unique_bytes),
        )
        for share in shares
    ]
    return "\n".join(
        [
            table(columns, rows, right=columns[1:]),
            "",
            f"{size(found.stored_bytes)} stored for {size(found.logical_bytes)} of files; "
            f"{size(found.unreachable_bytes)} of it no tag leads to",
            f"{found.shared_chunks} of {found.chunks} chunks are in several layers, "
            f"which saves {size(found.saved_bytes)}",
            f"{size(found.dead_bytes)} of {size(found.pack_bytes)} in packs are of no use any more",
        ]
    )
