"""`ps`, `stats` and `logs`."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from dsec_layers.cli.context import assignments, json_option
from dsec_layers.cli.output import printable, size, table
from dsec_runtime.cli.context import EdgeContext, SandboxType, pass_edge, wait_for

if TYPE_CHECKING:
    from dsec_runtime.messages import Event, UsageAnswer
    from dsec_runtime.spec import SandboxInfo

_SHOWN = 48


@click.command(short_help="List sandboxes.")
@click.option("--all", "-a", "every", is_flag=True, help="Those that have ended too.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only with this.")
@click.option("--quiet", "-q", is_flag=True, help="Print ids only.")
@json_option
@pass_edge
def ps(context: EdgeContext, every: bool, labels: tuple[str, ...], quiet: bool) -> None:
    """List sandboxes, the oldest first."""
    wanted = assignments(labels, "--label")

    async def ask() -> list[SandboxInfo]:
        async with context.client() as client:
            return await client.list(labels=wanted, ended=every)

    infos = wait_for(ask())
    context.output.result(
        infos, lambda: "\n".join(each.id for each in infos) if quiet else _listing(infos)
    )


@click.command(short_help="Show what sandboxes use.")
@click.argument("sandboxes", nargs=-1, type=SandboxType())
@json_option
@pass_edge
def stats(context: EdgeContext, sandboxes: tuple[str, ...]) -> None:
    """Show what SANDBOXES, or all that run or are paused, use now."""

    async def ask() -> dict[str, UsageAnswer]:
        async with context.client() as client:
            names = sandboxes or tuple(info.id for info in await client.list())
            found = [await client.get(name) for name in names]
            return {each.id: await each.usage() for each in found}

    used = wait_for(ask())
    columns = ("SANDBOX", "MEMORY", "SWAP", "CPU", "THROTTLED", "PIDS", "DISK", "OOM KILLS")
    rows = [
        (
            name,
            size(each.memory_bytes),
            size(each.swap_bytes),
            f"{each.cpu_s:.2f} s",
            f"{each.throttled_s:.2f} s",
            str(each.pids),
            size(each.disk_bytes),
            str(each.oom_kills),
        )
        for name, each in used.items()
    ]
    context.output.result(used, lambda: table(columns, rows, right=columns[1:]))


@click.command(short_help="Show what a sandbox was asked, or what a command of it wrote.")
@click.argument("sandbox", type=SandboxType())
@click.argument("command", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes.")
@json_option
@pass_edge
def logs(context: EdgeContext, sandbox: str, command: str | None, follow: bool) -> None:
    """Show what SANDBOX was asked and did, or the kept output of COMMAND (its id, as in the log).

    Output of a command that still runs is shown until it ends. `fncall` instead of a sandbox stands
    for the stateless tasks.
    """
    if sandbox == "fncall" and (command is not None or follow):
        raise click.UsageError("the log of tasks has no commands and is not followed")

    async def work() -> None:
        async with context.client() as client:
            if sandbox == "fncall":
                for event in await client.fncall_log():
                    _show(context, event)
                return
            found = await client.get(sandbox)
            if command is not None:
                async with await found.attach(command) as process:
                    async for piece in process:
                        out = sys.stdout if piece.stream == "stdout" else sys.stderr
                        out.buffer.write(piece.data)
                        out.buffer.flush()
                return
            for event in await found.log():
                _show(context, event)
            if follow:
                async for event in found.events():
                    _show(context, event)

    wait_for(work())


def _show(context: EdgeContext, event: Event) -> None:
    if context.output.as_json:
        sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    else:
        moment = time.strftime("%H:%M:%S", time.localtime(event.time_s))
        said = " ".join(f"{name}={value}" for name, value in event.detail.items())
        state = f" {event.state.value}" if event.kind == "state" and event.state else ""
        sys.stdout.write(f"{moment} {event.kind}{state} {printable(said)}".rstrip() + "\n")
    sys.stdout.flush()


def _listing(infos: list[SandboxInfo]) -> str:
    columns = ("SANDBOX", "ENVIRONMENT", "TIER", "STATE", "AGE", "IDLE", "ENDS IN", "LABELS")
    now = time.time()
    rows = [
        (
            info.id,
            _environment(info)[:_SHOWN],
            info.spec.tier.value,
            info.state.value,
            _span(now - info.created_s),
            _span(now - info.used_s),
            _span(info.ends_s - now) if info.ends_s else "",
            shlex.join(f"{name}={value}" for name, value in info.spec.labels.items()),
        )
        for info in infos
    ]
    return table(columns, [tuple(map(printable, row)) for row in rows])


def _environment(info: SandboxInfo) -> str:
    wish = info.spec.environment
    return wish.reference or wish.image or " + ".join(wish.layers)


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
