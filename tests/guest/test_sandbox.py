"""A sandbox at a real edge on a node with cgroup v2: its whole life."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dsec_runtime import errors
from dsec_runtime.resources import layout
from dsec_runtime.spec import MIB, State
from tests.support.edges import RealEdge, args, real_edge

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]
# A program finds its limits where it looks for them, and cannot change them.
_LOOK = """
cd /sys/fs/cgroup
cat memory.max pids.max
mkdir inner || echo no group
echo max > memory.max || echo no change
"""


@pytest.fixture
def edge() -> Iterator[RealEdge]:
    if layout.find().v1:
        pytest.skip("this machine's controllers are not those of cgroup v2")
    with real_edge() as made:
        yield made


def test_the_life_of_a_sandbox(edge: RealEdge) -> None:
    asyncio.run(life(edge))


async def life(edge: RealEdge) -> None:
    async with edge.client() as client, await client.run_container(args()) as box:
        seen = (await box.run_shell(_LOOK)).text.splitlines()
        assert seen == [str(96 * MIB), "64", "no group", "no change"]

        result = await box.exec(["tail", "/dev/zero"])
        assert isinstance(result.error, errors.OutOfMemoryError)
        assert result.error.detail["process"] == "tail"
        assert result.error.detail["limit_bytes"] == 96 * MIB

        hold = '$| = 1; $x = "a" x 24e6; print 1; <STDIN>; print length $x'
        async with await box.start(["perl", "-e", hold], stdin=True) as process:
            output = aiter(process)
            assert (await anext(output)).data == b"1"
            assert await box.pause() > 24e6 * 0.9
            assert (await box.refresh()).state is State.PAUSED
            assert (await box.usage()).swap_bytes > 24e6 * 0.9
            await process.write("\n")  # which resumes it
            assert (await anext(output)).data == b"24000000"
        assert (await box.refresh()).state is State.RUNNING
        assert (await box.stop()).state is State.STOPPED
