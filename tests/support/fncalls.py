"""Stateless tasks for tests, and what the pool of a real edge does with them."""

from __future__ import annotations

import asyncio

from dsec_runtime.sdk import DSecClient
from dsec_runtime.spec import Environment, FncallTask
from tests.support import sandboxes as support
from tests.support.edges import RealEdge


def task(code: str, **more: object) -> FncallTask:
    given = {"environment": Environment(reference=support.BASE), "code": code, **more}
    return FncallTask(**given)  # type: ignore[arg-type] # by name


async def pool(client: DSecClient) -> dict[str, int]:
    """Containers by what they do."""
    lines = (await client.metrics()).splitlines()
    found = [line for line in lines if line.startswith("dsec_edge_pool{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in found}


async def discards(client: DSecClient) -> int:
    """How many containers were given up because a task left them unclean."""
    name = "dsec_edge_pool_discards_total "
    lines = (await client.metrics()).splitlines()
    (found,) = [line for line in lines if line.startswith(name)]
    return int(float(found.removeprefix(name)))


async def settled(client: DSecClient) -> None:
    """Wait until all containers are clean or gone."""
    busy = ("starting", "busy", "ending")
    counts = await pool(client)
    while any(counts[each] for each in busy):
        await asyncio.sleep(0.01)
        counts = await pool(client)


def containers(edge: RealEdge) -> set[str]:
    """Those of the pool, by their folders."""
    return {path.name for path in (edge.home / "run/sandboxes").iterdir() if path.name[:2] == "fn"}
