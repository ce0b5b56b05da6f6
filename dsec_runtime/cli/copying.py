"""`cp`."""

from __future__ import annotations

from pathlib import Path

import click

from dsec_layers.cli.context import json_option
from dsec_layers.cli.output import printable, size
from dsec_runtime.cli.context import EdgeContext, pass_edge, wait_for

_MAX_NOTES = 20


@click.command(short_help="Copy files into and out of sandboxes.")
@click.argument("source")
@click.argument("target")
@json_option
@pass_edge
def cp(context: EdgeContext, source: str, target: str) -> None:
    """Copy SOURCE to TARGET, of which one is SANDBOX:PATH.

    \b
    dsec cp SANDBOX:/workspace/report.txt .
    dsec cp data SANDBOX:/workspace/data

    What is in a directory comes to lie in TARGET. Devices, and links that lead out of the
    directory, are not copied out of a sandbox.
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    inside, outside = _sandbox(source), _sandbox(target)
    if bool(inside) == bool(outside):
        raise click.UsageError("one of the two is SANDBOX:PATH, the other a path here")
    moved = 0

    def count(so_far: int) -> None:
        nonlocal moved
        moved = so_far

    async def work() -> list[str]:
        async with context.client() as client:
            if inside:
                name, path = inside
                local = Path(target)
                local = local / Path(path).name if local.is_dir() else local
                found = await client.get(name)
                return await found.files.download(path, local, on_progress=count)
            assert outside
            found = await client.get(outside[0])
            await found.files.upload(source, outside[1], on_progress=count)
            return []

    left_out = wait_for(work())
    for path in left_out[:_MAX_NOTES]:
        context.output.note(f"note: left out {printable(path)}")
    told = {"bytes": moved, "left_out": left_out}
    context.output.result(told, lambda: size(moved))


def _sandbox(text: str) -> tuple[str, str] | None:
    """Sandbox and path; a path here begins with `.` or `/`, or has no colon."""
    name, colon, path = text.partition(":")
    return (name, path or ".") if colon and name.isalnum() else None
