"""`upgrade`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from dsec_layers.api import upgrading
from dsec_layers.api.upgrading import Status, Upgraded, UpgradeOptions
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, table
from dsec_layers.cli.progress import meter
from dsec_layers.cli.signing import signature_options
from dsec_layers.errors import ConflictError, DsecError
from dsec_layers.model.reference import Kind, Reference

_LAYER = ReferenceType(Kind.BASE, Kind.WORKSPACE, Kind.TOOLKIT, hint="name the new layer")
_SHORT_DIGEST = slice(7, 19)


@click.command(short_help="Replace one layer of many environments.")
@click.argument("layer", type=_LAYER)
@click.argument("url", required=False)
@click.option(
    "--in",
    "environments",
    multiple=True,
    required=True,
    metavar="ENV",
    help="An environment, or a pattern such as 'env/swe/*'; may be repeated.",
)
@click.option("--to-tag", metavar="TAG", help="Make this tag, and leave the old one as it is.")
@click.option("--check", is_flag=True, help="Count what `compose --check` would find.")
@click.option("--strict", is_flag=True, help="Leave out environments in which it finds errors.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@signature_options
@json_option
@pass_context
def upgrade(
    context: Context,
    layer: Reference,
    url: str | None,
    environments: tuple[str, ...],
    to_tag: str | None,
    check: bool,
    strict: bool,
    dry_run: bool,
) -> None:
    """Put LAYER in the place of the layer of the same repository in each --in environment.

    Nothing is built: each tag moves to a new list of layers, unless somebody else moved it
    meanwhile. The environments are those of this machine, or of the store at URL. A pattern
    passes over environments that have no layer of the repository. When some fail the others go
    on, and the exit status says so.

    \b
    dsec-layers upgrade toolkit/harness:v2 --in 'env/swe/*'
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    options = UpgradeOptions(to_tag=to_tag, check=check, strict=strict, dry_run=dry_run, url=url)
    with meter(context.output, f"upgrade to {layer}", unit="environments") as shown:
        rows = upgrading.upgrade(
            context.workbench, layer, environments, options, on_done=shown.count
        )
    context.output.result(rows, lambda: _text(rows, dry_run=dry_run))
    _judge(rows)


def _text(rows: Sequence[Upgraded], *, dry_run: bool) -> str:
    """A line for each environment that changes or fails, and the counts."""
    columns = ("ENVIRONMENT", "STATUS", "BEFORE", "AFTER", "NOTE")
    lines = [_line(row) for row in rows if row.status is not Status.UNCHANGED]
    counts = Counter(row.status for row in rows)
    total = ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
    ending = " (dry run: nothing was written)" if dry_run else ""
    return "\n".join([*(table(columns, lines),) * bool(lines), (total or "nothing to do") + ending])


def _line(row: Upgraded) -> tuple[str, ...]:
    note = printable(row.reason)
    if not note and row.errors is not None:
        note = f"check: errors {row.errors}, warnings {row.warnings}"
    name = row.environment if row.target == row.environment else f"{row.environment} > {row.target}"
    return (name, row.status.value, row.before[_SHORT_DIGEST], row.after[_SHORT_DIGEST], note)


def _judge(rows: Sequence[Upgraded]) -> None:
    failed = [row for row in rows if row.failed]
    if not failed:
        return
    conflicts = all(row.status is Status.CONFLICT for row in failed)
    error = ConflictError if conflicts else DsecError
    raise error(
        f"{len(failed)} of {len(rows)} environments were not upgraded; {failed[0].environment}: "
        f"{failed[0].reason}",
        hint="the same command again takes those that are left" if conflicts else None,
    )
