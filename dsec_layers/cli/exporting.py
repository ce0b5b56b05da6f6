"""`export`."""

from __future__ import annotations

import click

from dsec_layers.api import exporting
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size
from dsec_layers.cli.progress import meter
from dsec_layers.exporting.compression import Compression
from dsec_layers.exporting.destination import Destination, Format
from dsec_layers.model.reference import Reference


@click.command(short_help="Write a layer or environment as an OCI image.")
@click.argument("reference", type=ReferenceType())
@click.argument("destination")
@click.option(
    "--format",
    "format_",
    type=click.Choice([each.value for each in Format if each is not Format.REGISTRY]),
    help="The form of the image.  [default: by DESTINATION]",
)
@click.option(
    "--compression",
    type=click.Choice([each.value for each in Compression]),
    help="Of its layers.  [default: gzip, in a docker-archive none]",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Threads that compress.  [default: cores]"
)
@json_option
@pass_context
def export(
    context: Context,
    reference: Reference,
    destination: str,
    format_: str | None,
    compression: str | None,
    workers: int | None,
) -> None:
    """Write REFERENCE, with what it stands on, as an image that other engines run.

    DESTINATION is a path, or oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME:TAG],
    or docker://REGISTRY/NAME[:TAG], where only what is missing is sent. A path that ends in .tar
    becomes an oci-archive, another an OCI layout; a layout that is there takes the image in. Each
    layer becomes one of the image, and the same reference the same bytes.

    \b
    dsec-layers export env/demo:v1 docker-archive:demo.tar:demo:v1 && docker load -i demo.tar
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    place = Destination.parse(destination, Format(format_) if format_ else None)
    options = exporting.ExportOptions(
        compression=Compression(compression) if compression else None, workers=workers
    )
    with meter(context.output, f"export {reference}") as shown:

        def progress(done: int, total: int) -> None:
            shown.total_bytes = total
            shown.add(done)

        exported = exporting.export(context.workbench, reference, place, options, progress)
    for path in exported.sockets:
        context.output.note(f"left out: /{printable(path)} is a socket")
    context.output.result(exported, lambda: _text(exported))


def _text(exported: exporting.Exported) -> str:
    count = len(exported.layers)
    stored = sum(layer.size_bytes for layer in exported.layers)
    return (
        f"{exported.format}:{exported.destination}:{exported.name} {exported.image_id}\n"
        f"  {count} layer{'s' if count > 1 else ''}, {size(stored)}"
        + (f", {size(exported.sent_bytes)} sent" if exported.sent_bytes is not None else "")
    )
