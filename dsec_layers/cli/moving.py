"""`push` and `pull`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from dsec_layers.api import moving
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import size
from dsec_layers.cli.progress import meter
from dsec_layers.cli.signing import signature_options
from dsec_layers.cli.sizes import SizeType
from dsec_layers.model.reference import Reference
from dsec_layers.registry.transfer import DEFAULT_WORKERS

F = TypeVar("F", bound=Callable[..., object])


def limit_options(command: F) -> F:
    """`--jobs` and `--limit-rate`, of commands that move layers."""
    jobs = click.option(
        "--jobs",
        type=click.IntRange(1, 256),
        default=DEFAULT_WORKERS,
        show_default=True,
        help="Move so many blobs at once.",
    )
    rate = click.option(
        "--limit-rate",
        type=SizeType(),
        metavar="SIZE",
        help="Move no more than SIZE a second, e.g. 50M.",
    )
    return jobs(rate(command))


@click.command(short_help="Copy a layer or environment to a store.")
@click.argument("reference", type=ReferenceType())
@click.argument("url")
@limit_options
@json_option
@pass_context
def push(
    context: Context, reference: Reference, url: str, jobs: int, limit_rate: int | None
) -> None:
    """Copy a layer, or an environment with its layers, to the store at URL.

    Only what the store lacks is sent; the tag appears when all of it is there.
    """
    with meter(context.output, f"push {reference}") as shown:
        moved = moving.push(
            context.workbench, reference, url, shown.transfer, moving.Limits(jobs, limit_rate)
        )
    context.output.result(
        moved,
        lambda: (
            f"{reference} {moved.digest}\n  {size(moved.sent_bytes)} sent, "
            f"{size(moved.skipped_bytes)} already there"
        ),
    )


@click.command(short_help="Copy a layer or environment from a store to this machine.")
@click.argument("reference", type=ReferenceType())
@click.argument("url", required=False)
@click.option("--metadata-only", is_flag=True, help="Leave the data there, to be read lazily.")
@limit_options
@signature_options
@json_option
@pass_context
def pull(
    context: Context,
    reference: Reference,
    url: str | None,
    metadata_only: bool,
    jobs: int,
    limit_rate: int | None,
) -> None:
    """Copy a layer or an environment from the store at URL (or a --store) to this machine."""
    with meter(context.output, f"pull {reference}") as shown:
        moved = moving.pull(
            context.workbench,
            reference,
            url,
            metadata_only=metadata_only,
            progress=shown.transfer,
            limits=moving.Limits(jobs, limit_rate),
        )
    context.output.result(
        moved,
        lambda: (
            f"{reference} {moved.digest}\n  {size(moved.sent_bytes)} fetched, "
            f"{size(moved.skipped_bytes)} already here"
        ),
    )
