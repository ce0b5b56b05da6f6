"""`diff`, `why` and `history`: what is between layers and environments, and inside of them."""

from __future__ import annotations

import click

from dsec_layers.api import differing
from dsec_layers.api import history as api_history
from dsec_layers.api import why as api_why
from dsec_layers.api.filedata import How
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size
from dsec_layers.model.reference import Reference

_HOW = {
    How.SIZE: "content",
    How.CHUNKS: "content (by chunks)",
    How.READ: "content (read)",
    How.UNREAD: "content (not read, may be equal)",
}


@click.command(short_help="Show what differs between two layers or environments.")
@click.argument("before", type=ReferenceType())
@click.argument("after", type=ReferenceType())
@click.option("--times", is_flag=True, help="Compare modification times too.")
@click.option("--summary", "short", is_flag=True, help="Print numbers only.")
@click.option("--metadata-only", is_flag=True, help="Read no data; tell what may differ.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there is a difference.")
@json_option
@click.pass_context
def diff(
    click_context: click.Context,
    before: Reference,
    after: Reference,
    times: bool,
    short: bool,
    metadata_only: bool,
    exit_code: bool,
) -> None:
    """Show what a mount of AFTER shows that one of BEFORE does not, and the other way round.

    \b
    A  only in AFTER      M  changed
    D  only in BEFORE     T  of another type

    Files of equal size are compared by their chunks, which needs no data; where chunks do not tell,
    both files are read. Names of one inode are compared one by one.
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    context = click_context.ensure_object(Context)
    found = differing.diff(context.workbench, before, after, times=times, read=not metadata_only)
    shown = found.summary if short else found
    context.output.result(
        shown, lambda: _summary(found.summary) if short else "\n".join(map(_line, found.changes))
    )
    if exit_code and found.changes:
        click_context.exit(1)


@click.command(short_help="Show which layer gives a path, and which hides it.")
@click.argument("reference", type=ReferenceType())
@click.argument("path")
@json_option
@pass_context
def why(context: Context, reference: Reference, path: str) -> None:
    """Show what each layer of REFERENCE says about PATH, from top to bottom.

    Links in the directories of PATH are followed, one at its end is not. PATH need not exist.
    """
    found = api_why.why(context.workbench, reference, path)
    context.output.result(found, lambda: _explained(found))


@click.command(short_help="Show the layers of a layer or environment, and how they were made.")
@click.argument("reference", type=ReferenceType())
@json_option
@pass_context
def history(context: Context, reference: Reference) -> None:
    """Show the layers of REFERENCE, lowest first: where each comes from, and what it sets."""
    found = api_history.history(context.workbench, reference)
    context.output.result(found, lambda: "\n".join(map(_made, found)))


def _line(change: differing.Change) -> str:
    details = [_detail(each) for each in change.details]
    if change.type_before and change.type_after and change.type_before != change.type_after:
        details.insert(0, f"{change.type_before} -> {change.type_after}")
    return "\t".join(filter(None, (change.status, printable(change.path), ", ".join(details))))


def _detail(detail: differing.Detail) -> str:
    if detail.how is not None:
        return _HOW[detail.how]
    words = f"{detail.field} {detail.before or 'none'} -> {detail.after or 'none'}"
    return printable(words)


def _summary(summary: differing.Summary) -> str:
    return (
        f"{summary.added} added, {summary.removed} removed, {summary.changed} changed, "
        f"{summary.retyped} of another type\n"
        f"{size(summary.added_bytes)} more, {size(summary.removed_bytes)} less, "
        f"{summary.read} files read to compare them"
    )


def _explained(found: api_why.Explained) -> str:
    missing = "" if found.present else " is not in the composition"
    rows = (f"  {printable(row.layer)}: {_row(row, found.path)}" for row in found.layers)
    return "\n".join([printable(found.path) + missing, *rows])


def _row(row: api_why.Row, path: str) -> str:
    there = "" if row.at in (None, path) else f" {printable(row.at or '')}"
    words = {
        api_why.Says.GIVES: f"gives the {_what(row)}",
        api_why.Says.REMOVES: f"removes{there or ' it'}",
        api_why.Says.EMPTIES: f"hides what is below it in{there}",
        api_why.Says.REPLACES: f"has a {row.type} at{there}",
        api_why.Says.NOTHING: "nothing",
    }[row.says]
    if row.wins:
        words += ", which is seen"
    elif row.merges:
        words += ", which is one with that above"
    if row.hidden_by:
        words += f", hidden by {printable(row.hidden_by)}"
    return words


def _what(row: api_why.Row) -> str:
    words = f"{row.type} {row.mode} {row.uid}:{row.gid}"
    if row.size_bytes is not None:
        words += f" of {size(row.size_bytes)}"
    return words if row.target is None else f"{words} -> {printable(row.target)}"


def _made(made: api_history.Made) -> str:
    row = made.layer
    lines = [
        f"{row.reference} {row.digest}",
        f"{row.kind}, {row.entries} entries, {size(row.content_bytes)}, "
        f"{size(row.stored_bytes)} stored",
    ]
    if made.source:
        lines.append(f"source: {made.source}")
    if made.base:
        lines.append(f"built on: {f'{made.base_name} {made.base}'.strip()}")
    if made.layerfile_digest:
        lines.append(f"Layerfile: {made.layerfile_digest}")
    if made.source_date_epoch is not None:
        lines.append(f"epoch: {made.source_date_epoch}")
    lines += [f"input {name}: {value}" for name, value in sorted(made.inputs.items())]
    lines += [f"sets {_setting(each)}" for each in made.run]
    return "\n  ".join(map(printable, lines))


def _setting(setting: api_history.Setting) -> str:
    after = "nothing" if setting.after is None else setting.after
    before = "" if setting.before is None else f" (was {setting.before})"
    return f"{setting.name}: {after}{before}"
