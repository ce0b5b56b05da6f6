"""`fncall`."""

from __future__ import annotations

from typing import IO

import click

from dsec_layers.cli.context import ReferenceType, json_option
from dsec_layers.cli.spans import SpanType
from dsec_layers.model.reference import Reference
from dsec_runtime.cli.context import EdgeContext, pass_edge, wait_for


@click.command(short_help="Run a stateless task in a warm sandbox.")
@click.argument("environment", type=ReferenceType())
@click.option("--kind", default="shell", help="How the code is run: shell, python, ...")
@click.option("--code", type=click.File("r"), default="-", help="The code.  [default: our input]")
@click.option("--timeout", type=SpanType(), default=60.0, show_default=False, help="How long.")
@json_option
@pass_edge
def fncall(
    context: EdgeContext, environment: Reference, kind: str, code: IO[str], timeout: float
) -> None:
    """Run code in a warm sandbox of ENVIRONMENT, of which nothing is kept afterwards."""
    from dsec_runtime.spec import Environment, FncallTask

    task = FncallTask(
        environment=Environment(reference=str(environment)),
        kind=kind,
        code=code.read(),
        timeout_s=timeout,
    )

    async def ask() -> object:
        async with context.client() as client:
            return await client.run_fncall(task)

    context.output.result(wait_for(ask()))
