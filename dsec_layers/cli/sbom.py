"""`sbom`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable
from dsec_layers.model.reference import Reference


@click.command(short_help="Write the bill of materials of a layer or environment.")
@click.argument("reference", type=ReferenceType())
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write it to this file."
)
@json_option
@pass_context
def sbom(context: Context, reference: Reference, output: Path | None) -> None:
    """Write the packages of REFERENCE as CycloneDX 1.6 in JSON, each with the layer it comes from.

    Read are the databases of dpkg, apk and rpm (SQLite), and the metadata of Python and npm
    packages; nothing is mounted. What a higher layer hides is not listed. What cannot be read is
    told in notes, which are in the document too. The same environment gives the same bytes.
    """
    from dsec_layers.api.materials import materials

    made = materials(context.workbench, reference)
    for note in made.notes:
        where = f"{note.layer}: {note.path} " if note.path else ""
        context.output.note(printable(f"note: {where}{note.message}"))
    if output is None:
        context.output.result(json.loads(made.document), lambda: made.document)
        return
    from dsec_layers.lazyfs.durable import write_whole

    write_whole(output, [made.document.encode()])
    result = {"file": str(output), "packages": made.packages}
    context.output.result(result, lambda: f"{output}: {made.packages} packages")
