"""`copy` and `sync`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from dsec_layers.api import mirroring
from dsec_layers.api.moving import Limits
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.moving import limit_options
from dsec_layers.cli.output import printable, size, table
from dsec_layers.cli.progress import meter
from dsec_layers.model.reference import Reference
from dsec_layers.registry.urls import open_store

F = TypeVar("F", bound=Callable[..., object])


def ends(command: F) -> F:
    """`--from` and `--to`."""
    to = click.option("--to", "destination", required=True, metavar="URL", help="The other store.")
    source = click.option(
        "--from", "source", required=True, metavar="URL", help="The store to read from."
    )
    return source(to(command))


@click.command(short_help="Copy layers and environments from store to store.")
@click.argument("references", nargs=-1, required=True, type=ReferenceType())
@ends
@limit_options
@json_option
@pass_context
def copy(
    context: Context,
    references: tuple[Reference, ...],
    source: str,
    destination: str,
    jobs: int,
    limit_rate: int | None,
) -> None:
    """Copy REFERENCES from the store at --from to the one at --to.

    Only what the other lacks is moved; after an interruption the same command goes on.
    """
    here = open_store(source)
    for reference in references:
        here.resolve(reference)  # before a store is made for nothing
    with meter(context.output, "copy") as shown:
        moved = mirroring.copy(
            references,
            here,
            open_store(destination, create=True),
            Limits(jobs, limit_rate),
            lambda _: shown.transfer,
        )
    lines = [
        f"{each.reference} {each.digest}\n  {size(each.sent_bytes)} sent, "
        f"{size(each.skipped_bytes)} already there"
        for each in moved
    ]
    context.output.result(moved, lambda: "\n".join(lines))


@click.command(short_help="Keep a store's copy of what is chosen up to date.")
@click.argument("selectors", nargs=-1, required=True, metavar="SELECTOR...")
@ends
@click.option("--dry-run", is_flag=True, help="Only tell what is missing there.")
@limit_options
@json_option
@pass_context
def sync(
    context: Context,
    selectors: tuple[str, ...],
    source: str,
    destination: str,
    dry_run: bool,
    jobs: int,
    limit_rate: int | None,
) -> None:
    """Copy all that SELECTORs choose to the store at --to, and tell what is complete there.

    A SELECTOR is a kind, or a pattern of references: env, 'workspace/swe/*', 'env/demo:v?'. What
    the other store has besides stays. A problem with one does not stop the rest; the exit status is
    that of the first.
    """
    with meter(context.output, "sync") as shown:
        done = mirroring.sync(
            selectors,
            open_store(source),
            open_store(destination, create=not dry_run),
            dry_run=dry_run,
            limits=Limits(jobs, limit_rate),
            begin=lambda _: shown.transfer,
        )
    context.output.result(done, lambda: _report(done))
    if done.exit_code:
        raise click.exceptions.Exit(done.exit_code)


def _report(done: mirroring.Synced) -> str:
    rows = [
        (
            each.reference,
            each.digest.removeprefix("sha256:")[:12],
            size(each.copied_bytes),
            size(each.missing_bytes),
            _state(each),
        )
        for each in done.references
    ]
    columns = ("REFERENCE", "DIGEST", "COPIED", "MISSING", "THERE")
    ready = f"{len(done.ready)} environments are complete in {done.destination}"
    return table(columns, rows, right=columns[2:4]) + "\n" + ready


def _state(row: mirroring.Mirrored) -> str:
    if row.problem:
        return f"problem: {printable(row.problem)}"
    return "complete" if row.complete else "incomplete"
