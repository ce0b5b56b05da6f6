"""What the agent of a sandbox may claim for itself where root has all capabilities."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_runtime.channel import Channel
from dsec_runtime.spec import ExecSpec
from tests.support import agents

pytestmark = pytest.mark.root


def test_memory_takes_commands_before_the_agent(tmp_path: Path) -> None:
    script = "f=/proc/self/oom_score_adj; cat $f; echo -1 > $f; cat $f; echo 7 > $f; cat $f"
    told: list[bytes] = []

    async def life(channel: Channel) -> None:
        spec = ExecSpec(argv=("sh", "-c", script), merge=True, user="1000")
        process = await channel.exec(spec, "one")
        told.extend([piece.data async for piece in process])

    with agents.running(tmp_path) as agent:
        # The old file moves the score and leaves the least that the process may choose itself.
        try:
            Path(f"/proc/{agent.pid}/oom_adj").write_text("-17")
        except PermissionError:
            pytest.skip("root of this machine may not protect processes (CAP_SYS_RESOURCE)")
        assert Path(f"/proc/{agent.pid}/oom_score_adj").read_text() == "-1000\n"
        agents.talk(agent, life)
    lines = b"".join(told).decode().splitlines()
    assert [line for line in lines if line.isdigit()] == ["0", "0", "7"]
