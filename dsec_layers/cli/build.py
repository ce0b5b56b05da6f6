"""`build`."""

from __future__ import annotations

from pathlib import Path

import click

from dsec_layers.api import building, linting
from dsec_layers.api.buildcontexts import parse_contexts
from dsec_layers.api.buildrequests import BuildOptions
from dsec_layers.api.secrets import read_secrets
from dsec_layers.cli.advice import as_lines
from dsec_layers.cli.context import (
    Context,
    ReferenceType,
    assignments,
    json_option,
    pass_context,
)
from dsec_layers.cli.dictionary import chunk_dict_option
from dsec_layers.cli.output import layer_text
from dsec_layers.cli.progress import meter
from dsec_layers.cli.signing import signature_options
from dsec_layers.cli.sizes import SizeType
from dsec_layers.cli.steps import steps_shown
from dsec_layers.model.reference import Kind, Reference


@click.command(short_help="Build a layer from a Layerfile.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--tag",
    "-t",
    "reference",
    type=ReferenceType(
        Kind.BASE, Kind.WORKSPACE, Kind.TOOLKIT, hint="`dsec-layers compose` makes environments"
    ),
    help="Its name; without it the LAYER line's, tagged latest.",
)
@click.option(
    "--file",
    "-f",
    "layerfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The Layerfile or Dockerfile; PATH is then only the context.",
)
@click.option("--kind", type=click.Choice(["base", "workspace", "toolkit"]), help="Override LAYER.")
@click.option("--name", help="Override LAYER.")
@click.option("--target", metavar="STAGE", help="Build this stage instead of the last.")
@click.option(
    "--build-arg",
    "args",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set an ARG, or hand ours on.",
)
@click.option(
    "--build-context",
    "contexts",
    multiple=True,
    metavar="NAME=VALUE",
    help="What NAME is in FROM, COPY --from and RUN --mount=from: a folder, docker-image://IMAGE, "
    "oci-layout:///DIR[:TAG], docker-archive:///FILE or layer:KIND/NAME:TAG.",
)
@click.option("--pull", is_flag=True, help="Ask registries anew for the images it stands on.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="id=ID[,src=FILE|env=NAME]",
    help="Show a file, or a variable of ours, to RUN --mount=type=secret.",
)
@click.option(
    "--epoch",
    "epoch_s",
    type=int,
    envvar="SOURCE_DATE_EPOCH",
    metavar="SECONDS",
    help="Build reproducibly: no file is newer than this  [env: SOURCE_DATE_EPOCH]",
)
@click.option("--no-cache", is_flag=True, help="Carry out every step.")
@click.option(
    "--host-mirrors",
    is_flag=True,
    help="Lend RUN steps this machine's package settings (apt, pip, npm, CA, proxies).",
)
@click.option(
    "--jobs", "-j", type=click.IntRange(1), help="Steps done at once.  [default: cores, at least 2]"
)
@click.option("--workers", type=click.IntRange(1), help="Threads that compress.  [default: cores]")
@click.option(
    "--cache-from",
    multiple=True,
    metavar="URL",
    help="Take results of steps from this store; may be repeated.",
)
@click.option(
    "--cache-to",
    multiple=True,
    metavar="URL",
    help="Put results of steps into this store; may be repeated.",
)
@click.option(
    "--cache-limit",
    "cache_bytes",
    type=SizeType(),
    envvar="DSEC_STEP_CACHE_LIMIT",
    help="Keep so much of the step cache here, such as 20G"
    "  [env: DSEC_STEP_CACHE_LIMIT; default: a tenth of the disk]",
)
@click.option(
    "--verify-reproducible",
    "verify",
    is_flag=True,
    help="Build twice, and tag nothing when the layers differ.",
)
@chunk_dict_option
@click.option("--check", is_flag=True, help="Plan, and look for mistakes; carry out nothing.")
@signature_options
@json_option
@pass_context
def build(
    context: Context,
    path: Path,
    reference: Reference | None,
    layerfile: Path | None,
    kind: str | None,
    name: str | None,
    target: str | None,
    args: tuple[str, ...],
    contexts: tuple[str, ...],
    pull: bool,
    secrets: tuple[str, ...],
    epoch_s: int | None,
    no_cache: bool,
    host_mirrors: bool,
    jobs: int | None,
    workers: int | None,
    cache_from: tuple[str, ...],
    cache_to: tuple[str, ...],
    cache_bytes: int | None,
    verify: bool,
    chunk_dicts: tuple[Reference, ...],
    check: bool,
) -> None:
    """Build the layer of the Layerfile in the directory PATH (or in the file PATH).

    dsec-layers build layerfiles/python -t base/python:3.11
    """
    named = parse_contexts(contexts)
    options = BuildOptions(
        layerfile=layerfile,
        kind=kind,
        name=name,
        target=target,
        args=assignments(args, "--build-arg"),
        epoch_s=epoch_s,
        no_cache=no_cache,
        host_mirrors=host_mirrors,
        workers=workers,
        secrets=read_secrets(secrets),
        contexts=named.folders,
        layers=named.layers,
        pull=pull,
        jobs=jobs,
        cache_from=cache_from,
        cache_to=cache_to,
        cache_bytes=cache_bytes,
        verify=verify,
        chunk_dicts=chunk_dicts,
    )
    if check:
        found, advice = linting.check(context.workbench, path, reference, options)
        context.output.result(found, lambda: as_lines(found.findings))
        advice.raise_if_error()
        return
    with steps_shown(context.output) as steps, meter(context.output, "pack") as shown:
        row = building.build(
            context.workbench,
            path,
            reference,
            options,
            on_event=steps.show,
            on_bytes=None if verify else shown.add,  # a bar must not stand below further steps
        )
    steps.finish(row)
    context.output.result(row, lambda: layer_text(row))
