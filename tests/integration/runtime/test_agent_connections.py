"""Connections that break, listeners that leave and come again, and what is kept for them."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from dsec_runtime.channel import Channel, Process
from dsec_runtime.errors import LostError, StateConflictError, UnknownSandboxError
from dsec_runtime.spec import ExecSpec
from tests.support import agents
from tests.support.relay import Relay

pytestmark = pytest.mark.root


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[agents.Agent]:
    with agents.running(tmp_path) as running:
        yield running


def shell(script: str, **more: object) -> ExecSpec:
    return ExecSpec(argv=("bash", "-c", script), **more)  # type: ignore[arg-type]


def relayed(agent: agents.Agent, life: Callable[[Channel, Relay], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with Relay(agent.socket.with_name("relay.sock"), agent.socket) as relay:
            channel = await Channel.connect(relay.path)
            try:
                await life(channel, relay)
            finally:
                channel.close()
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(connected(), 100))


def test_output_goes_on_where_it_was_when_the_connection_breaks(agent: agents.Agent) -> None:
    async def life(channel: Channel, relay: Relay) -> None:
        process = await channel.exec(shell("seq 2000000", keep_bytes=65536), "one")
        digest, offset, cuts = hashlib.sha256(), 0, 0
        async for piece in process:
            assert piece.offset == offset
            digest.update(piece.data)
            offset += len(piece.data)
            if offset > (cuts + 1) * 2_000_000:
                cuts += 1
                relay.cut()
        assert cuts >= 6
        assert (await process.wait()).stdout_bytes == offset
        whole = "".join(f"{number}\n" for number in range(1, 2000001)).encode()
        assert digest.digest() == hashlib.sha256(whole).digest()

    relayed(agent, life)


def test_input_arrives_once_however_often_the_connection_breaks(agent: agents.Agent) -> None:
    content = os.urandom(4 << 20)

    async def life(channel: Channel, relay: Relay) -> None:
        process = await channel.exec(ExecSpec(argv=("sha256sum",), stdin=True), "one")
        for at in range(0, len(content), 1 << 18):
            await process.write_stdin(content[at : at + (1 << 18)])
            if at % (1 << 20) == 0:
                relay.cut()
        relay.cut()
        process.close_stdin()
        data = b"".join([piece.data async for piece in process])
        assert data.split()[0].decode() == hashlib.sha256(content).hexdigest()

    relayed(agent, life)


def test_a_command_is_started_once_when_its_answer_is_lost(
    agent: agents.Agent, tmp_path: Path
) -> None:
    async def life(channel: Channel, relay: Relay) -> None:
        for number in range(20):
            starting = asyncio.ensure_future(
                channel.exec(shell(f"echo {number} >> {tmp_path}/log"), str(number))
            )
            for _ in range(number):
                await asyncio.sleep(0)
            relay.cut()
            assert (await (await starting).wait()).status == 0
        lines = (tmp_path / "log").read_text().split()
        assert lines == [str(number) for number in range(20)]

    relayed(agent, life)


def test_requests_that_do_no_harm_are_sent_again(agent: agents.Agent, tmp_path: Path) -> None:
    async def life(channel: Channel, relay: Relay) -> None:
        for turns in range(10):
            asking = asyncio.ensure_future(channel.stat(str(tmp_path)))
            for _ in range(turns):
                await asyncio.sleep(0)
            relay.cut()
            assert (await asking).kind == "directory"

    relayed(agent, life)


def test_a_connection_that_cannot_be_made_again_is_a_lost_sandbox(agent: agents.Agent) -> None:
    async def life(channel: Channel, relay: Relay) -> None:
        process = await channel.exec(ExecSpec(argv=("sleep", "100")), "one")
        relay.refuse()
        relay.cut()
        for broken in (process.wait(), channel.ping(), channel.exec(shell("true"), "two")):
            with pytest.raises(LostError):
                await broken

    relayed(agent, life)


def test_another_agent_in_its_place_is_a_lost_sandbox(tmp_path: Path) -> None:
    with agents.running(tmp_path) as first:

        async def life(channel: Channel, relay: Relay) -> None:
            other = tmp_path / "other"
            other.mkdir()
            with agents.running(other) as second:
                os.rename(second.socket, first.socket)
                relay.cut()
                with pytest.raises(LostError, match="another agent"):
                    await channel.ping()

        relayed(first, life)


async def text(process: Process) -> str:
    return b"".join([piece.data async for piece in process if piece.stream == "stdout"]).decode()


def test_an_ended_command_keeps_its_status_and_output(agent: agents.Agent) -> None:
    async def first(channel: Channel) -> None:
        process = await channel.exec(shell("echo 123456789; exit 5"), "one")
        await process.wait()

    async def second(channel: Channel) -> None:
        for offset in (0, 4, 10):
            process = await channel.attach("one", offset)
            assert await text(process) == "123456789\n"[offset:]
            assert (await process.wait()).status == 5
        (listed,) = await channel.processes()
        assert (listed.id, listed.running, listed.background) == ("one", False, False)
        assert listed.end is not None
        assert listed.end.status == 5

    agents.talk(agent, first)
    agents.talk(agent, second)


def test_a_command_without_listener_goes_on_and_tells_of_the_gap(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        total = 3_000_000
        spec = shell(f"yes | head -c {total}; echo end >&2", keep_bytes=100_000)
        process = await channel.exec(spec, "one", hold_s=0)
        process.detach()
        while not (await channel.processes())[0].end:
            await asyncio.sleep(0.01)
        process = await channel.attach("one", 10)
        pieces = [piece async for piece in process if piece.stream == "stdout"]
        assert pieces[0].offset == total - 100_000
        assert sum(len(piece.data) for piece in pieces) == 100_000
        assert (await process.wait()).stdout_bytes == total

    agents.talk(agent, life)


def test_output_that_is_to_be_held_waits_for_a_listener(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        spec = shell("seq 100000", keep_bytes=65536)
        process = await channel.exec(spec, "one", hold_s=None)
        process.detach()
        await channel.exec(shell("sleep 0.3"), "other")
        process = await channel.attach("one")
        assert await text(process) == "".join(f"{n}\n" for n in range(1, 100001))

    agents.talk(agent, life)


def test_a_command_has_one_listener_the_newest(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        first = await channel.exec(ExecSpec(argv=("cat",), stdin=True), "one")
        second = await channel.attach("one")
        with pytest.raises(StateConflictError, match="another caller"):
            await first.wait()
        await second.write_stdin(b"words")
        second.close_stdin()
        assert await text(second) == "words"

    agents.talk(agent, life)


def test_ended_commands_are_kept_with_a_bound(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        for number in range(1100):
            await (await channel.exec(ExecSpec(argv=("true",)), str(number))).wait()
        kept = await channel.processes()
        assert 1000 <= len(kept) <= 1024
        assert kept[-1].id == "1099"
        with pytest.raises(UnknownSandboxError):
            await channel.attach("0")

    agents.talk(agent, life)
