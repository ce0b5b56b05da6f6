"""`trace`, `plan` and `report`, and the option of commands that mount by a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size, table
from dsec_layers.cli.sizes import SizeType
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference

if TYPE_CHECKING:
    from dsec_layers.api.accesses import Accesses, LayerAccess, PathAccess
    from dsec_layers.api.foreseeing import LayerPlan, StartPlan

F = TypeVar("F", bound=Callable[..., object])


class _PrefetchType(click.ParamType[int | None]):
    """`auto` (None), `off` (0), or a size."""

    name = "prefetch"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> int | None:
        """The number of bytes, None for as many as the daemon finds right."""
        word = str(value).lower()
        if word in ("auto", "off"):
            return None if word == "auto" else 0
        try:
            return SizeType().convert(value, parameter, context)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{value!r} is neither auto nor off nor a size", hint="write 200M, auto or off"
            ) from error


def prefetch_option(command: F) -> F:
    """`--prefetch`, of commands that mount."""
    return click.option(
        "--prefetch",
        type=_PrefetchType(),
        default="auto",
        envvar="DSEC_PREFETCH",
        show_default=True,
        metavar="SIZE|auto|off",
        help="Fetch what earlier runs read first, behind all reads, at most so much; auto is 512M,"
        " and never more than a quarter of the cache  [env: DSEC_PREFETCH]",
    )(command)


@click.group(short_help="What environments read first: look at it, merge it, share it.")
def trace() -> None:
    """Look after access traces: what environments read first, recorded whenever they are mounted.

    A start is prefetched by them; `plan` and `report` tell what they say.
    """


@trace.command(short_help="Show what runs of an environment touched.")
@click.argument("reference", type=ReferenceType())
@click.option("--depth", type=click.IntRange(0), default=2, show_default=True, help="So deep.")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Paths shown.")
@json_option
@pass_context
def show(context: Context, reference: Reference, depth: int, most: int) -> None:
    """Show which chunks, directories and files of REFERENCE its runs touched, of each layer."""
    from dsec_layers.api.accesses import accesses

    found = accesses(context.workbench, reference, depth=depth, most=most)
    context.output.result(found, lambda: _shown(found))


@trace.command(name="merge", short_help="Merge trace files into what is known here.")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@json_option
@pass_context
def merge_(context: Context, paths: tuple[Path, ...]) -> None:
    """Merge trace files, as they lie in `traces` of another home, into what is known here."""
    from dsec_layers.api.traces import merge_files

    rows = merge_files(context.workbench, paths)
    context.output.result(
        rows,
        lambda: "\n".join(
            f"{row.environment} {row.runs} runs, {row.chunks} chunks" for row in rows
        ),
    )


@trace.command(short_help="Put a trace beside its environment in a store.")
@click.argument("reference", type=ReferenceType())
@click.argument("url")
@json_option
@pass_context
def push(context: Context, reference: Reference, url: str) -> None:
    """Put the trace of REFERENCE beside it in the store at URL, in place of an older one.

    It goes along when the environment is copied, and counts on a machine that has none of its own.
    """
    from dsec_layers.api import traces

    row = traces.push(context.workbench, reference, url)
    context.output.result(
        row, lambda: f"{reference} {row.environment}\n  {row.runs} runs, {row.chunks} chunks"
    )


@trace.command(name="rm", short_help="Forget the trace of an environment.")
@click.argument("reference", type=ReferenceType())
@click.argument("url", required=False)
@json_option
@pass_context
def remove(context: Context, reference: Reference, url: str | None) -> None:
    """Forget what is known of REFERENCE here, or what lies beside it in the store at URL."""
    from dsec_layers.api import traces

    removed = traces.remove(context.workbench, reference, url)
    context.output.result(
        {"removed": removed}, lambda: None if removed else f"nothing is known of {reference}"
    )


@click.command(short_help="Foresee what a start will fetch.")
@click.argument("reference", type=ReferenceType())
@json_option
@pass_context
def plan(context: Context, reference: Reference) -> None:
    """Foresee the bytes and requests of a start of REFERENCE, by its trace.

    What the cache of this machine has already is taken off. Nothing is mounted or fetched.
    """
    from dsec_layers.api.foreseeing import plan as foresee

    found = foresee(context.workbench, reference)
    context.output.result(found, lambda: _planned(found))


@click.command(short_help="Tell how much of an environment its runs touch.")
@click.argument("reference", type=ReferenceType())
@click.option("--depth", type=click.IntRange(0), default=2, show_default=True, help="So deep.")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Paths shown.")
@json_option
@pass_context
def report(context: Context, reference: Reference, depth: int, most: int) -> None:
    """Tell which share of REFERENCE its runs touch, and what could be left out.

    That is the largest directories of which no recorded run touched anything. A small file counts
    as touched when its neighbour in the same chunk was.
    """
    from dsec_layers.api.accesses import accesses

    found = accesses(context.workbench, reference, depth=depth, most=most)
    context.output.result(found, lambda: _reported(found))


def _shown(found: Accesses) -> str:
    return "\n\n".join(
        [_layers(found), _paths("DIRECTORY", found.directories), _paths("FILE", found.files)]
    )


def _reported(found: Accesses) -> str:
    left_out = table(
        ("NEVER TOUCHED", "LAYER", "SIZE"),
        [
            (printable(each.path), str(each.layer), size(each.size_bytes))
            for each in found.untouched
        ],
        right=("SIZE",),
    )
    return "\n\n".join([_layers(found), _paths("DIRECTORY", found.directories), left_out])


def _layers(found: Accesses) -> str:
    from dsec_layers.api.accesses import total

    columns = ("LAYER", "RUNS", "CHUNKS", "TOUCHED", "A RUN", "OF", "SHARE")
    rows = [_layer(layer) for layer in (*found.layers, total(found))]
    return table(columns, rows, right=columns[1:])


def _layer(layer: LayerAccess) -> tuple[str, ...]:
    return (
        layer.layer,
        str(layer.runs),
        f"{layer.touched_chunks}/{layer.chunks}",
        size(layer.touched_bytes),
        size(layer.run_bytes),
        size(layer.device_bytes),
        f"{layer.share / 10:.1f}%",
    )


def _paths(title: str, rows: tuple[PathAccess, ...]) -> str:
    columns = (title, "LAYER", "TOUCHED", "OF")
    lines = [
        (printable(row.path), str(row.layer), size(row.touched_bytes), size(row.size_bytes))
        for row in rows
    ]
    return table(columns, lines, right=("TOUCHED", "OF"))


def _planned(found: StartPlan) -> str:
    columns = ("LAYER", "RUNS", "WANTED", "CACHED", "FETCHED", "REQUESTS", "FROM")
    rows = [_plan(layer) for layer in (*found.layers, found.total)]
    return table(columns, rows, right=columns[1:-1])


def _plan(layer: LayerPlan) -> tuple[str, ...]:
    return (
        layer.layer,
        str(layer.runs),
        size(layer.wanted_bytes),
        size(layer.cached_bytes),
        size(layer.fetched_bytes),
        str(layer.requests),
        "local store" if layer.local else "stores",
    )
