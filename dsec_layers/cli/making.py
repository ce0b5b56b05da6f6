"""`import` and `compose`: layers from elsewhere, and environments from layers."""

from __future__ import annotations

import click

from dsec_layers.api import composing, importing
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import layer_text
from dsec_layers.cli.progress import meter
from dsec_layers.model.reference import Kind, Reference

_ONLY_BASES = "a base is imported; workspaces and toolkits are built on one with a Layerfile"


@click.command("import", short_help="Make a base layer from a root file system.")
@click.argument("source")
@click.argument("reference", type=ReferenceType(Kind.BASE, hint=_ONLY_BASES))
@click.option("--image", metavar="NAME", help="Which image of an archive that holds several.")
@click.option(
    "--epoch",
    "epoch_s",
    type=int,
    envvar="SOURCE_DATE_EPOCH",
    metavar="SECONDS",
    help="Let no file be newer than this  [env: SOURCE_DATE_EPOCH]",
)
@json_option
@pass_context
def import_(
    context: Context, source: str, reference: Reference, image: str | None, epoch_s: int | None
) -> None:
    """Make the base layer REFERENCE from a root file system.

    SOURCE is a tar (plain, gzip, zstd, xz), an archive of docker save, - for either of them on
    standard input, a directory, or an OCI layout.

    \b
    mmdebstrap --variant=minbase bookworm - | dsec-layers import - base/debian:12
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    options = importing.ImportOptions(image=image, epoch_s=epoch_s)
    with meter(context.output, f"import {reference}") as shown:
        row = importing.import_(context.workbench, source, reference, options, shown.add)
    context.output.result(row, lambda: layer_text(row))


_ENVIRONMENT = ReferenceType(Kind.ENV, hint="write -t env/name:tag")


@click.command(short_help="Make an environment of a base, a workspace and toolkits.")
@click.argument("parts", nargs=-1, required=True, type=ReferenceType())
@click.option("--tag", "-t", "reference", required=True, type=_ENVIRONMENT, help="Its name.")
@json_option
@pass_context
def compose(context: Context, parts: tuple[Reference, ...], reference: Reference) -> None:
    """Put one base, at most one workspace and any number of toolkits together.

    Toolkits stack in the order given, the last one on top. Reads metadata only.
    """
    row = composing.compose(
        context.workbench,
        parts,
        reference,
        on_doubt=lambda doubt: context.output.note(f"note: {doubt}"),
    )
    context.output.result(row, lambda: layer_text(row))
