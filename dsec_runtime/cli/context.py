"""What every command gets: the output, the home, and a client of the edge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from dsec_layers.api.workbench import Workbench, default_home
from dsec_layers.cli.context import Context

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dsec_runtime.sdk.client import DSecClient

T = TypeVar("T")
SOCKET = "run/edge.sock"


@dataclass(slots=True)
class EdgeContext(Context):
    """The object behind `pass_edge`."""

    edge: str | None = None

    @property
    def address(self) -> str:
        """Where the edge is; without a word about it, the socket of the home."""
        return self.edge or f"unix://{self.workbench.home.root / SOCKET}"

    @contextlib.asynccontextmanager
    async def client(self, *, lease_s: float | None = None) -> AsyncIterator[DSecClient]:
        """An open client, whose sandboxes outlive it unless it has a lease."""
        from dsec_runtime.sdk.client import DSecClient

        client = DSecClient(self.address, lease_s=lease_s, patience_s=2.0)
        await client.open()
        try:
            yield client
        finally:
            await client.close()


pass_edge = click.make_pass_decorator(EdgeContext)


def wait_for(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


class SandboxType(click.ParamType[str]):
    """The id of a sandbox, completed from those that the edge has."""

    name = "sandbox"

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Ids that begin with what was typed; none when no edge answers."""
        from click.shell_completion import CompletionItem

        from dsec_runtime.errors import SandboxError

        given = context.find_root().params
        bench = Workbench(given.get("home") or default_home())
        found = EdgeContext(bench, edge=given.get("edge"))

        async def ids() -> list[str]:
            async with found.client() as client:
                return [info.id for info in await client.list()]

        try:
            return [CompletionItem(each) for each in wait_for(ids()) if each.startswith(incomplete)]
        except (SandboxError, OSError):
            return []
