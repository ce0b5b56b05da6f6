"""`pause`, `resume`, `stop`, `snapshot`, `fork` and `net`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from dsec_layers.cli.context import ReferenceType, json_option
from dsec_layers.cli.output import size
from dsec_layers.errors import DsecError
from dsec_layers.model.reference import Kind, Reference
from dsec_runtime.cli.context import EdgeContext, SandboxType, pass_edge, wait_for
from dsec_runtime.cli.rules import METAVAR, RuleType, described
from dsec_runtime.spec import State

if TYPE_CHECKING:
    from dsec_runtime.sdk.sandbox import Sandbox
    from dsec_runtime.spec import NetworkCounts, NetworkRule, SandboxInfo

T = TypeVar("T")
_AT_A_TIME = 8

_sandboxes = click.argument("sandboxes", nargs=-1, required=True, type=SandboxType())
_sandbox = click.argument("sandbox", type=SandboxType())


@click.command(short_help="Freeze sandboxes and give their memory back.")
@_sandboxes
@json_option
@pass_edge
def pause(context: EdgeContext, sandboxes: tuple[str, ...]) -> None:
    """Freeze sandboxes; any request to one resumes it."""

    def show(freed: Mapping[str, int]) -> None:
        context.output.result(
            {"freed_bytes": freed},
            lambda: "\n".join(f"{name} gave back {size(got)}" for name, got in freed.items()),
        )

    _each(context, sandboxes, lambda sandbox: sandbox.pause(), show)


@click.command(short_help="Let paused sandboxes go on.")
@_sandboxes
@json_option
@pass_edge
def resume(context: EdgeContext, sandboxes: tuple[str, ...]) -> None:
    """Let paused sandboxes go on."""

    def show(infos: Mapping[str, SandboxInfo]) -> None:
        context.output.result(list(infos.values()))

    _each(context, sandboxes, lambda sandbox: sandbox.resume(), show)


@click.command(short_help="End sandboxes.")
@click.argument("sandboxes", nargs=-1, type=SandboxType())
@click.option("--all", "every", is_flag=True, help="End all that are ours.")
@json_option
@pass_edge
def stop(context: EdgeContext, sandboxes: tuple[str, ...], every: bool) -> None:
    """End sandboxes and remove all that they have."""
    if bool(sandboxes) == every:
        raise click.UsageError("name sandboxes, or give --all")

    async def names() -> tuple[str, ...]:
        async with context.client() as client:
            return tuple(info.id for info in await client.list())

    def show(ended: Mapping[str, SandboxInfo]) -> None:
        context.output.result(list(ended.values()), lambda: "\n".join(ended))

    _each(context, wait_for(names()) if every else sandboxes, lambda each: each.stop(), show)


@click.command(short_help="Make a layer of what a sandbox wrote.")
@_sandbox
@click.argument("reference", type=ReferenceType(Kind.WORKSPACE, Kind.TOOLKIT))
@click.option("--scrub-git", is_flag=True, help="Keep of git repositories only what HEAD needs.")
@click.option("--shallow", is_flag=True, help="Scrub, and keep no commit but HEAD itself.")
@click.option("--keep", multiple=True, metavar="RULE", help="Do not leave out what RULE names.")
@click.option("--drop", multiple=True, metavar="GLOB", help="Leave these paths out too.")
@json_option
@pass_edge
def snapshot(
    context: EdgeContext,
    sandbox: str,
    reference: Reference,
    scrub_git: bool,
    shallow: bool,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
) -> None:
    """Make the layer REFERENCE of what SANDBOX wrote, while it runs.

    Caches, logs and other residue are left out (docs/residue.md), which the layer attests.
    """

    def ask(each: Sandbox) -> Awaitable[str]:
        return each.snapshot(
            str(reference), scrub_git=scrub_git, shallow=shallow, keep=keep, drop=drop
        )

    digest = _one(context, sandbox, ask)
    made = {"reference": str(reference), "digest": digest}
    context.output.result(made, lambda: f"{reference} {digest}")


@click.command(short_help="Make sandboxes with the files of another.")
@_sandbox
@click.option("--count", "-n", type=click.IntRange(1, 1024), default=1, help="So many.")
@json_option
@pass_edge
def fork(context: EdgeContext, sandbox: str, count: int) -> None:
    """Make sandboxes that begin with the files of SANDBOX as they are now; print their ids."""
    made = _one(context, sandbox, lambda each: each.fork(count))
    infos = [each.info for each in made]
    context.output.result(infos, lambda: "\n".join(info.id for info in infos))


@click.command(short_help="Show or change the network rules of a sandbox.")
@_sandbox
@click.option(
    "--allow", multiple=True, type=RuleType(allow=True), metavar=METAVAR, help="Open it to this."
)
@click.option(
    "--deny", multiple=True, type=RuleType(allow=False), metavar=METAVAR, help="Close it to this."
)
@click.option("--none", is_flag=True, help="Close it to all.")
@json_option
@pass_edge
def net(
    context: EdgeContext,
    sandbox: str,
    allow: tuple[NetworkRule, ...],
    deny: tuple[NetworkRule, ...],
    none: bool,
) -> None:
    """Show the network rules of SANDBOX, and what they allowed and refused.

    With options, let these take the place of the rules it has; connections that they do not allow
    are cut. What no rule allows is denied.
    """
    wanted = (*deny, *allow)
    if wanted and none:
        raise click.UsageError("--none excludes --allow and --deny")

    async def ask(each: Sandbox) -> tuple[SandboxInfo, NetworkCounts | None]:
        info = await (each.set_network(wanted) if wanted or none else each.refresh())
        return info, None if info.state in _ENDED else await each.network_counts()

    info, counts = _one(context, sandbox, ask)
    rules = info.spec.network
    context.output.result({"rules": rules, "counts": counts}, lambda: described(rules, counts))


_ENDED = (State.STOPPED, State.LOST)


def _one(context: EdgeContext, name: str, ask: Callable[[Sandbox], Awaitable[T]]) -> T:
    """Ask a sandbox."""

    async def work() -> T:
        async with context.client() as client:
            return await ask(await client.get(name))

    return wait_for(work())


def _each(
    context: EdgeContext,
    names: tuple[str, ...],
    ask: Callable[[Sandbox], Awaitable[T]],
    show: Callable[[Mapping[str, T]], None],
) -> None:
    """Ask sandboxes, some at a time, and show what came of it.

    One that cannot do it keeps none of the others from it; the first such error is raised then.
    """
    failed: list[DsecError] = []

    async def work() -> dict[str, T]:
        turns, done = asyncio.Semaphore(_AT_A_TIME), dict[str, T]()

        async def one(name: str) -> None:
            async with turns:
                try:
                    done[name] = await ask(await client.get(name))
                except DsecError as error:
                    failed.append(error)

        async with context.client() as client:
            await asyncio.gather(*map(one, dict.fromkeys(names)))
        return {name: done[name] for name in names if name in done}

    done = wait_for(work())
    if done or not failed:
        show(done)
    for error in failed[1:]:
        context.output.error(error)
    if failed:
        raise failed[0]
