"""`fncall`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsec_layers.cli.context import ReferenceType, assignments, json_option
from dsec_layers.cli.sizes import SizeType
from dsec_layers.cli.spans import SpanType
from dsec_layers.model.reference import Reference
from dsec_runtime.cli.context import EdgeContext, pass_edge, wait_for

if TYPE_CHECKING:
    from dsec_runtime.sdk.fncalls import FncallResult


@click.command(short_help="Run a stateless task in a warm container.")
@click.option("--kind", default="shell", help="How the code is run: shell, python, ...")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="NAME=PATH",
    help="Put our file PATH into its folder as NAME.",
)
@click.option("--result", "results", multiple=True, metavar="NAME", help="Fetch a file it makes.")
@click.option("--stdin", is_flag=True, help="Hand our standard input on.")
@click.option("--env", "-e", multiple=True, metavar="NAME[=VALUE]", help="A variable.")
@click.option("--memory", type=SizeType(), help="The most memory, such as 512M.")
@click.option("--timeout", type=SpanType(), default=60.0, show_default=False, help="How long.")
@json_option
@click.argument("environment", type=ReferenceType())
@click.argument("code")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@pass_edge
@click.pass_context
def fncall(
    click_context: click.Context,
    context: EdgeContext,
    environment: Reference,
    code: str,
    arguments: tuple[str, ...],
    kind: str,
    files: tuple[str, ...],
    results: tuple[str, ...],
    stdin: bool,
    env: tuple[str, ...],
    memory: int | None,
    timeout: float,
) -> None:
    """Run CODE, or the file of this name, in a warm container of ENVIRONMENT; then nothing is left.

    dsec fncall env/demo:v1 --kind python -- 'print(6 * 7)'

    The exit status is that of the code. Results are written to the working directory; with --json
    all is one object.
    """
    from dsec_runtime.spec import Environment, FncallTask, Limits

    task = FncallTask(
        environment=Environment(reference=str(environment)),
        kind=kind,
        code=_text(code),
        argv=arguments,
        files={
            name: Path(path).read_bytes() for name, path in assignments(files, "--file").items()
        },
        results=results,
        stdin=sys.stdin.buffer.read() if stdin else b"",
        env=assignments(env, "--env"),
        limits=Limits(memory_bytes=memory),
        timeout_s=timeout,
    )

    async def ask() -> FncallResult:
        async with context.client() as client:
            return await client.run_fncall(task)

    result = wait_for(ask())
    if context.output.as_json:
        context.output.result(_told(result))
    else:
        _show(result)
    click_context.exit(result.exit_code)


def _text(code: str) -> str:
    """What a file of this name holds, if there is one."""
    try:
        return Path(code).read_text() if Path(code).is_file() else code
    except OSError:  # too long for a name
        return code


def _told(result: FncallResult) -> dict[str, object]:
    return {
        "end": result.end,
        "stdout": result.text,
        "stderr": result.stderr.decode(errors="replace"),
        "error": result.error.code if result.error else None,
        "files": result.files,
        "missing": result.missing,
    }


def _show(result: FncallResult) -> None:
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(result.stderr)
    for name, data in result.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    for name, why in result.missing.items():
        click.echo(f"{name}: {why}", err=True)
    if result.error is not None and result.error.code != "command_failed":
        click.echo(result.error.message, err=True)
