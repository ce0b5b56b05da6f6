"""The agent as process 1 of a PID namespace: it answers, runs commands, tells their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.channel import Channel
from dsec_runtime.errors import (
    CommandFailedError,
    LostError,
    StateConflictError,
    UnknownSandboxError,
)
from dsec_runtime.spec import EndCause, ExecSpec
from tests.support import agents

pytestmark = pytest.mark.root


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[agents.Agent]:
    with agents.running(tmp_path) as running:
        yield running


def test_a_command_has_its_arguments_environment_folder_and_status(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        spec = ExecSpec(
            argv=(
                "sh",
                "-c",
                'printf "%s|%s|%s" "$1" "$NAME" "$PWD"; echo oops >&2; exit 7',
                "-",
                "a b",
            ),
            env={"NAME": "välue"},
            cwd="/usr",
        )
        process = await channel.exec(spec, "one")
        output = [piece async for piece in process]
        end = await process.wait()
        assert b"".join(p.data for p in output if p.stream == "stdout") == "a b|välue|/usr".encode()
        assert b"".join(p.data for p in output if p.stream == "stderr") == b"oops\n"
        assert (end.cause, end.status, end.signal) == (EndCause.EXITED, 7, None)
        assert (end.stdout_bytes, end.stderr_bytes) == (15, 5)
        assert end.peak_bytes > 0

    agents.talk(agent, life)


def test_a_signal_is_told_as_such(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        process = await channel.exec(ExecSpec(argv=("sleep", "100")), "one")
        process.signal(15)
        end = await process.wait()
        assert (end.cause, end.status, end.signal) == (EndCause.SIGNALLED, 143, 15)

    agents.talk(agent, life)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (ExecSpec(argv=("/no/such",)), "cannot be executed: No such file"),
        (ExecSpec(argv=("/etc/passwd",)), "cannot be executed: Permission denied"),
        (ExecSpec(argv=("true",), cwd="/no/such"), "directory cannot be entered: No such file"),
        (ExecSpec(argv=("true",), user="nobody-of-that-name"), "user cannot be taken"),
    ],
)
def test_what_cannot_be_started_says_why(agent: agents.Agent, spec: ExecSpec, said: str) -> None:
    async def life(channel: Channel) -> None:
        with pytest.raises(CommandFailedError, match=said):
            await channel.exec(spec, "one")
        assert await channel.processes() == []

    agents.talk(agent, life)


def test_an_id_is_given_once(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        await (await channel.exec(ExecSpec(argv=("true",)), "one")).wait()
        with pytest.raises(StateConflictError):
            await channel.exec(ExecSpec(argv=("true",)), "one")
        await channel.forget("one")
        with pytest.raises(UnknownSandboxError):
            await channel.attach("one")
        assert (await (await channel.exec(ExecSpec(argv=("true",)), "one")).wait()).status == 0

    agents.talk(agent, life)


def test_an_agent_that_dies_is_lost_to_all_who_wait(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        process = await channel.exec(ExecSpec(argv=("sleep", "100")), "one")
        waiting = asyncio.ensure_future(process.wait())
        await channel.ping()
        agent.kill()
        with pytest.raises(LostError):
            await waiting
        with pytest.raises(LostError):
            await channel.ping()

    agents.talk(agent, life)
