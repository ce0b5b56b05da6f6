"""`ls`, `tags`, `search`, `resolve`, `tag` and `untag`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click

from dsec_layers.api import catalog
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size, table
from dsec_layers.model.blobs import Store
from dsec_layers.model.reference import Kind, Reference

F = TypeVar("F", bound=Callable[..., object])

in_option = click.option(
    "--in", "url", metavar="URL", help="In this store.  [default: the local one]"
)


def sort_option(command: F) -> F:
    """`--sort`, which all listings share."""
    return click.option(
        "--sort",
        "order",
        type=click.Choice(["name", "time", "size"]),
        default="name",
        help="By name and version, the latest first, or the largest.  [default: name]",
    )(command)


@click.command("ls")
@click.argument("kind", type=click.Choice([kind.value for kind in Kind]), required=False)
@in_option
@sort_option
@json_option
@pass_context
def list_(context: Context, kind: str | None, url: str | None, order: catalog.Order) -> None:
    """List the layers and environments in a store."""
    rows = catalog.listing(_store(context, url), Kind(kind) if kind else None, order=order)
    context.output.result(rows, lambda: _listing(rows))


@click.command(short_help="List the versions of a layer or environment.")
@click.argument("repository", metavar="KIND/NAME")
@in_option
@sort_option
@json_option
@pass_context
def tags(context: Context, repository: str, url: str | None, order: catalog.Order) -> None:
    """List the versions of KIND/NAME, with when they were tagged and who made them."""
    kind, name = catalog.repository(repository)
    rows = catalog.listing(_store(context, url), kind, name, order)
    columns = ("TAG", "DIGEST", "STORED", "TAGGED", "BUILDER")
    cells = [
        (
            Reference.parse(row.reference).tag,
            _short(row.digest),
            size(row.layer.stored_bytes) if row.layer else f"damaged: {row.problem}",
            row.tagged,
            printable(row.builder),
        )
        for row in rows
    ]
    context.output.result(rows, lambda: table(columns, cells, right=("STORED",)))


@click.command(short_help="Find layers and environments by words.")
@click.argument("words", nargs=-1, required=True)
@in_option
@sort_option
@json_option
@pass_context
def search(context: Context, words: tuple[str, ...], url: str | None, order: catalog.Order) -> None:
    """List what has all WORDS in its name or in its labels."""
    rows = catalog.search(_store(context, url), words, order)
    context.output.result(rows, lambda: _listing(rows))


@click.command(short_help="Show the digest that a reference stands for now.")
@click.argument("reference", type=ReferenceType())
@in_option
@json_option
@pass_context
def resolve(context: Context, reference: Reference, url: str | None) -> None:
    """Print REFERENCE with its digest, by which it means the same for ever.

    Looked up in the local store and the --store ones, or only in that of --in; nothing is fetched.
    """
    bench = context.workbench
    stores = [bench.store(url)] if url else [bench.local, *bench.remotes]
    found = catalog.resolve(stores, reference)
    context.output.result(found, lambda: found.pinned)


@click.command(short_help="Give a layer or environment another name.")
@click.argument("source", type=ReferenceType())
@click.argument("name", type=ReferenceType())
@in_option
@click.option("--if-absent", is_flag=True, help="Fail when NAME exists.")
@click.option("--expect", metavar="DIGEST", help="Fail unless NAME points to this now.")
@json_option
@pass_context
def tag(
    context: Context,
    source: Reference,
    name: Reference,
    url: str | None,
    if_absent: bool,
    expect: str | None,
) -> None:
    """Let NAME point to what SOURCE stands for; both are in the same store.

    dsec-layers tag env/demo@sha256:... env/demo:stable --expect sha256:...
    """
    if if_absent and expect:
        raise click.UsageError("--if-absent and --expect exclude each other")
    store = _store(context, url)
    made = catalog.tag(store, source, name, if_absent=if_absent, expect=expect)
    context.output.result(made, lambda: f"{made.reference} {made.digest}")


@click.command(short_help="Remove tags from a store.")
@click.argument("references", nargs=-1, required=True, type=ReferenceType())
@in_option
@json_option
@pass_context
def untag(context: Context, references: tuple[Reference, ...], url: str | None) -> None:
    """Remove tags; the data stays until `gc` finds that nothing needs it."""
    catalog.untag(_store(context, url), references)
    context.output.result({"removed": [str(each) for each in references]})


def _store(context: Context, url: str | None) -> Store:
    return context.workbench.store(url)


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _listing(rows: Iterable[catalog.Listed]) -> str:
    columns = ("REFERENCE", "DIGEST", "ENTRIES", "SIZE", "STORED", "DATA")
    return table(columns, [_cells(row) for row in rows], right=columns[2:5])


def _cells(row: catalog.Listed) -> Sequence[str]:
    if row.layer is None:
        problem = printable(row.problem or "")
        return (row.reference, _short(row.digest), "", "", "", f"damaged: {problem}")
    return (
        row.reference,
        _short(row.digest),
        str(row.layer.entries),
        size(row.layer.content_bytes),
        size(row.layer.stored_bytes),
        "here" if row.complete else "lazy",
    )
