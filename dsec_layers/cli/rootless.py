"""The part of `mount` that needs no root."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from dsec_layers.api import mounting
from dsec_layers.cli.context import Context
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference

F = TypeVar("F", bound=Callable[..., object])


def rootless_options(command: F) -> F:
    """`--rootless` and `--foreground`."""
    for option in (
        click.option(
            "--foreground",
            is_flag=True,
            help="With --rootless: stay until it is unmounted or interrupted.",
        ),
        click.option("--rootless", is_flag=True, help="Read-only, for yourself, without root."),
    ):
        command = option(command)
    return command


def refuse_what_needs_root(upper: Path | None) -> None:
    """Options of `mount` that have no meaning without root. Raises InvalidInputError."""
    given = click.get_current_context().get_parameter_source
    if upper is not None:
        raise InvalidInputError(
            "--upper does not go with --rootless: an overlay that can be written to needs root",
            hint="copy what is to change, or mount as root without --rootless",
        )
    if given("prefetch") is ParameterSource.COMMANDLINE:
        raise InvalidInputError(
            "--prefetch does not go with --rootless: only the daemon of root reads traces",
            hint="leave it out: reading a file in order is fetched ahead anyway",
        )


def mount_rootless(
    context: Context, reference: Reference, target: Path, *, foreground: bool
) -> None:
    """Mount, and print as `mount` does. Raises as `rootless.mount`."""
    bench, note = context.workbench, context.output.note
    if not foreground:
        made = mounting.mount_rootless(bench, reference, target, note=note)
        context.output.result(made, lambda: made.target)
        return

    def ready(row: mounting.Mounted) -> None:
        context.output.result(row, lambda: row.target)
        sys.stdout.flush()

    mounting.serve_rootless(bench, reference, target, note=note, ready=ready)
