"""`run` and `exec`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import click

from dsec_layers.cli.context import assignments, json_option
from dsec_layers.cli.spans import SpanType
from dsec_runtime.cli.asking import environment_argument, run_args, sandbox_options
from dsec_runtime.cli.context import EdgeContext, SandboxType, pass_edge, wait_for

if TYPE_CHECKING:
    from dsec_runtime.sdk.results import ExecResult
    from dsec_runtime.sdk.sandbox import Sandbox
    from dsec_runtime.spec import SandboxInfo

_LEASE_S = 60.0
_KILL_S = 5.0

_interactive = click.option("--interactive", "-i", is_flag=True, help="Hand our standard input on.")
_terminal = click.option("--tty", "-t", "terminal", is_flag=True, help="Give it a terminal.")
_create_s = click.option(
    "--create-timeout", type=SpanType(), default=120.0, show_default=False,
    help="How long its creation may take.  [default: 2m]",
)  # fmt: skip


@click.command(
    short_help="Make a sandbox and run a command in it.",
    context_settings={"allow_interspersed_args": False},
)
@sandbox_options
@_interactive
@_terminal
@click.option("--detach", "-d", is_flag=True, help="Leave it running, and print its id.")
@_create_s
@json_option
@environment_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@pass_edge
@click.pass_context
def run(
    click_context: click.Context,
    context: EdgeContext,
    /,
    environment: str,
    command: tuple[str, ...],
    interactive: bool,
    terminal: bool,
    detach: bool,
    create_timeout: float,
    **given: object,
) -> None:
    """Make a sandbox of ENVIRONMENT, run COMMAND in it and end it; the exit status is COMMAND's.

    dsec run env/demo:v1 -- python3 -m pytest -q

    With --detach the sandbox goes on, with COMMAND if there is one. With --json the result is one
    object, with the output in it.
    """
    command = _words(command)
    if not command and not detach:
        raise click.UsageError("give a command after --, or --detach")
    _check_manner(context, interactive, terminal, detach)
    args = run_args(environment, given)

    async def work() -> int:
        # An owner's lease ends the sandbox when we are killed.
        async with context.client(lease_s=None if detach else _LEASE_S) as client:
            sandbox = await client.run_container(args, timeout=create_timeout)
            if detach:
                return await _left_running(context, sandbox, command)
            async with sandbox:
                return await _to_its_end(context, sandbox, command, interactive, terminal)

    click_context.exit(wait_for(work()))


@click.command(
    "exec",
    short_help="Run a command in a sandbox.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--env", "-e", multiple=True, metavar="NAME[=VALUE]", help="A variable.")
@click.option("--workdir", "-w", help="The working directory.")
@click.option("--user", "-u", help="The user.")
@click.option("--timeout", type=SpanType(), help="Kill it, with all it started, after so long.")
@click.option("--detach", "-d", is_flag=True, help="Leave it running, and print its id.")
@_interactive
@_terminal
@json_option
@click.argument("sandbox", type=SandboxType())
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_edge
@click.pass_context
def exec_(
    click_context: click.Context,
    context: EdgeContext,
    sandbox: str,
    command: tuple[str, ...],
    env: tuple[str, ...],
    workdir: str | None,
    user: str | None,
    timeout: float | None,
    detach: bool,
    interactive: bool,
    terminal: bool,
) -> None:
    """Run COMMAND in SANDBOX; the exit status is COMMAND's.

    dsec exec -it SANDBOX -- bash

    With --json the result is one object, with the output in it.
    """
    command = _words(command)
    if not command:
        raise click.UsageError("give a command after --")
    _check_manner(context, interactive, terminal, detach)
    options = {"env": assignments(env, "--env"), "cwd": workdir, "user": user, "timeout": timeout}

    async def work() -> int:
        async with context.client() as client:
            found = await client.get(sandbox)
            if detach:
                process = await found.start(command, stdin=False, **options)  # type: ignore[arg-type]
                context.output.result({"sandbox": sandbox, "exec": process.id}, lambda: process.id)
                return 0
            return await _to_its_end(context, found, command, interactive, terminal, **options)

    click_context.exit(wait_for(work()))


def _words(given: tuple[str, ...]) -> tuple[str, ...]:
    """The command without the dashes before it, which click leaves to us behind a first word."""
    return given[1:] if given[:1] == ("--",) else given


def _check_manner(context: EdgeContext, interactive: bool, terminal: bool, detach: bool) -> None:
    """Raises click.UsageError where one of two options would mean nothing."""
    if detach and (interactive or terminal):
        raise click.UsageError("--detach excludes --interactive and --tty")
    if terminal and context.output.as_json:
        raise click.UsageError("--json excludes --tty")


async def _to_its_end(
    context: EdgeContext,
    sandbox: Sandbox,
    command: tuple[str, ...],
    interactive: bool,
    terminal: bool,
    **options: object,
) -> int:
    if not context.output.as_json:
        return await _on_our_terminal(sandbox, command, interactive, terminal, **options)
    data = sys.stdin.buffer.read() if interactive else None
    return _told(context, await sandbox.exec(command, stdin=data, **options))  # type: ignore[arg-type]


async def _left_running(context: EdgeContext, sandbox: Sandbox, command: tuple[str, ...]) -> int:
    if command:
        await sandbox.start(command)
    info: SandboxInfo = sandbox.info
    context.output.result(info, lambda: info.id)
    return 0


async def _on_our_terminal(
    sandbox: Sandbox,
    command: tuple[str, ...],
    interactive: bool,
    terminal: bool,
    **options: object,
) -> int:
    from dsec_runtime.cli.terminal import attach, size
    from dsec_runtime.errors import CommandFailedError, SandboxError
    from dsec_runtime.sdk.results import finished, not_started
    from dsec_runtime.spec import EndCause

    try:
        process = await sandbox.start(
            command,
            stdin=interactive,
            pty=size() if terminal else None,
            output_limit=_NO_LIMIT,
            **options,  # type: ignore[arg-type] # those of `exec`
        )
    except CommandFailedError as error:  # as a shell tells it
        result = not_started("", error)
        sys.stderr.write(result.stderr.decode())
        return result.exit_code
    async with process:
        try:
            end = await attach(process, interactive=interactive, terminal=terminal)
        except BaseException:
            # We are ended, by Ctrl-C or otherwise: what runs in our place must not go on unseen.
            with contextlib.suppress(SandboxError, TimeoutError):
                async with asyncio.timeout(_KILL_S):
                    await process.kill()
            raise
    blame = finished(process.id, process.spec, end, b"", b"").error
    if blame is not None and end.cause not in (EndCause.EXITED, EndCause.SIGNALLED):
        click.echo(blame.message, err=True)
    return end.status


_NO_LIMIT = 1 << 62  # what we print we need not keep


def _told(context: EdgeContext, result: ExecResult) -> int:
    told = {
        "id": result.id,
        "end": result.end,
        "stdout": result.text,
        "stderr": result.stderr.decode(errors="replace"),
        "error": result.error.code if result.error else None,
    }
    context.output.result(told)
    return result.exit_code
