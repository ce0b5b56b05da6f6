"""The edge killed at any moment of creation, commands, files, pause and stop, again and again."""

from __future__ import annotations

import asyncio
import random

import pytest

from dsec_runtime.resources import layout
from dsec_runtime.spec import State
from tests.support.edges import RealEdge, args, left
from tests.support.profiles import NIGHTLY

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]
ROUNDS = 50 if NIGHTLY else 4  # of two kills each
LIVES = 4
SPAN_S = 0.4  # in which the kills of a life fall


async def life(edge: RealEdge, number: int) -> str:
    """All that a sandbox goes through. What was acknowledged must be there afterwards."""
    async with edge.client(patience_s=120.0) as client:
        sandbox = await client.run_container(args(), timeout=120)
        await sandbox.files.write("/srv/file", f"acknowledged {number}")
        first = await sandbox.run_shell(f"echo {number}; sleep 0.1; cat /srv/file", check=True)
        assert first.text == f"{number}\nacknowledged {number}"
        await sandbox.pause()
        again = await sandbox.run_shell("cat /srv/file", check=True)
        assert again.text == f"acknowledged {number}"
        assert (await sandbox.stop()).state is State.STOPPED
        return sandbox.id


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_nothing_is_lost_and_nothing_is_left(edge: RealEdge, seed: int) -> None:
    moments = random.Random(seed)
    lives = [asyncio.create_task(life(edge, number)) for number in range(LIVES)]
    for _ in range(2):
        await asyncio.sleep(moments.random() * SPAN_S)
        edge.kill()
        await asyncio.to_thread(edge.start)
    ids = set(await asyncio.gather(*lives))
    assert len(ids) == LIVES
    assert left(edge) == []
    async with edge.client() as client:
        assert await client.list() == []
        known = {info.id for info in await client.list(ended=True)}
    assert known.isdisjoint(layout.groups(layout.find()).names())
