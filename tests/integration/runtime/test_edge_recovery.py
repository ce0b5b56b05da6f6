"""The edge killed and started again over running containers, and its own end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from dsec_runtime import alive, errors
from dsec_runtime.sdk import DSecClient, Sandbox
from dsec_runtime.spec import State
from tests.support.edges import RealEdge, args, end_all, left, real_edge

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]


@pytest.fixture(scope="module")
def edge_of_file() -> Iterator[RealEdge]:
    with real_edge() as made:
        yield made


@pytest.fixture
async def edge(edge_of_file: RealEdge) -> AsyncIterator[RealEdge]:
    """Its sandboxes end with each test."""
    yield edge_of_file
    if edge_of_file.process is None:
        await asyncio.to_thread(edge_of_file.start)
    await end_all(edge_of_file)


def patient(edge: RealEdge) -> DSecClient:
    """A client that waits for an edge that is away."""
    return edge.client(patience_s=60.0)


def first_process(edge: RealEdge, sandbox: Sandbox) -> int:
    return int((edge.home / "run/sandboxes" / sandbox.id / "pid").read_text())


async def replaced(edge: RealEdge) -> None:
    """Kill the edge, and start another, while the loop goes on."""
    edge.kill()
    await asyncio.to_thread(edge.start)


async def test_commands_go_on_and_their_output_is_resumed(edge: RealEdge) -> None:
    async with patient(edge) as client:
        sandbox = await client.run_container(args(labels={"job": "17"}))
        script = "seq 1 1000; until test -e /tmp/go; do sleep 0.05; done; seq 1001 2000; exit 5"
        running = asyncio.create_task(sandbox.run_shell(script))
        process = await sandbox.start(["sh", "-c", f"read x; echo $x; {script}"], stdin=True)
        await process.write("hello\n")
        assert (await anext(aiter(process))).data.startswith(b"hello\n")
        while len(await sandbox.commands()) < 2:
            await asyncio.sleep(0.05)
        pid = first_process(edge, sandbox)
        for _ in range(3):
            await replaced(edge)
            assert (await sandbox.refresh()).state is State.RUNNING
        await sandbox.files.write("/tmp/go", b"")
        lines = b"".join(b"%d\n" % number for number in range(1, 2001))
        result = await running
        assert (result.stdout, result.exit_code) == (lines, 5)
        rest = await process.collect()
        assert (b"hello\n" + lines).endswith(rest.stdout)
        assert (rest.exit_code, rest.end.stdout_bytes) == (5, len(lines) + 6)
        assert first_process(edge, sandbox) == pid
        assert (await sandbox.refresh()).spec.labels == {"job": "17"}
        kinds = [event.kind for event in await sandbox.log()]
        assert kinds.count("created") == 1
        await sandbox.stop()


async def test_input_that_was_half_given_is_given_to_its_end(edge: RealEdge) -> None:
    """More than pipes and windows hold, to a command that reads when the edge has been replaced."""
    async with patient(edge) as client:
        sandbox = await client.run_container(args())
        script = "until test -e /tmp/go; do sleep 0.05; done; cat > /tmp/got; echo had all"
        data = bytes(range(256)) * 8192
        running = asyncio.create_task(sandbox.run_shell(script, stdin=data))
        while not await sandbox.commands():
            await asyncio.sleep(0.05)
        await replaced(edge)
        await sandbox.files.write("/tmp/go", b"")
        assert (await running).text == "had all\n"
        assert await sandbox.files.read("/tmp/got") == data
        await sandbox.stop()


async def test_an_edge_that_hangs_is_told_from_a_command_that_is_silent(
    edge: RealEdge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever; and what came late is found by who comes again."""
    async with edge.client(patience_s=0.0) as client:
        sandbox = await client.run_container(args())
        process = await sandbox.start(["sh", "-c", "read x; echo end"], stdin=True)
        assert edge.process is not None
        edge.process.send_signal(signal.SIGSTOP)
        try:
            monkeypatch.setattr(alive, "SILENCE_S", 1.0)
            with pytest.raises(errors.EdgeUnreachableError, match="nothing came for 1 s"):
                await sandbox.run_shell("true")
        finally:
            edge.process.send_signal(signal.SIGCONT)
        await process.write("\n")
        assert (await process.collect()).text == "end\n"
        await sandbox.stop()


async def test_paused_ones_stay_paused_until_they_are_used(edge: RealEdge) -> None:
    async with patient(edge) as client:
        sandbox = await client.run_container(args())
        await sandbox.run_shell("echo kept > /tmp/f; sleep 1000 >/dev/null 2>&1 &", check=True)
        await sandbox.pause()
        await replaced(edge)
        assert (await sandbox.refresh()).state is State.PAUSED
        found = await sandbox.run_shell("cat /tmp/f; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert found.text.startswith("kept\n")
        assert "sleep 1000" in found.text
        await sandbox.stop()


async def test_one_that_died_meanwhile_is_lost(edge: RealEdge) -> None:
    async with patient(edge) as client:
        sandbox = await client.run_container(args())
        edge.kill()
        os.kill(first_process(edge, sandbox), signal.SIGKILL)
        await asyncio.to_thread(edge.start)
        assert (await sandbox.refresh()).state is State.LOST
        with pytest.raises(errors.LostError):
            await sandbox.run_shell("true")
        assert left(edge) == []


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.1])
async def test_killed_while_creating_makes_one_and_leaves_nothing_else(
    edge: RealEdge, delay_s: float
) -> None:
    """The client asks again with its key; whatever was half-made is removed first."""
    async with patient(edge) as client:
        asked = [asyncio.create_task(client.run_container(args())) for _ in range(3)]
        await asyncio.sleep(delay_s)  # any moment will do; none is waited for
        await replaced(edge)
        made = await asyncio.gather(*asked)
        assert len({sandbox.id for sandbox in made}) == 3
        assert {info.id for info in await client.list()} == {sandbox.id for sandbox in made}
        assert (await made[0].run_shell("echo up")).text == "up\n"
        await asyncio.gather(*(sandbox.stop() for sandbox in made))
        assert left(edge) == []


async def test_killed_while_stopping_and_pausing(edge: RealEdge) -> None:
    async with patient(edge) as client:
        made = await asyncio.gather(*(client.run_container(args()) for _ in range(4)))
        work: list[asyncio.Task[object]] = [
            asyncio.create_task(sandbox.stop()) for sandbox in made[:2]
        ]
        work += [asyncio.create_task(_pause(sandbox)) for sandbox in made[2:]]
        await asyncio.sleep(0.01)
        await replaced(edge)
        await asyncio.gather(*work)
        for sandbox in made[:2]:
            assert (await sandbox.refresh()).state is State.STOPPED
        for sandbox in made[2:]:
            assert (await sandbox.run_shell("echo on")).text == "on\n"
            await sandbox.stop()
        assert left(edge) == []


async def _pause(sandbox: Sandbox) -> None:
    await sandbox.pause()


async def test_a_graceful_end_lets_short_requests_finish_and_sandboxes_live(
    edge: RealEdge,
) -> None:
    async with patient(edge) as client:
        sandbox = await client.run_container(args())
        short = asyncio.create_task(sandbox.run_shell("sleep 0.5; echo done"))
        while not await sandbox.commands():
            await asyncio.sleep(0.02)
        await asyncio.to_thread(edge.stop)
        await asyncio.to_thread(edge.start)
        assert (await short).text == "done\n"
        assert (await sandbox.run_shell("echo on")).text == "on\n"
        await sandbox.stop()


async def test_a_home_has_one_edge_at_a_time(edge: RealEdge) -> None:
    second = RealEdge(edge.home)
    second._notices = edge.home.parent / "notify2"
    with pytest.raises(AssertionError, match="another edge has"):
        await asyncio.to_thread(second.start)
    async with edge.client() as client:
        assert (await client.health()).status == "serving"


async def test_nobody_else_may_open_the_socket(edge: RealEdge) -> None:
    assert (edge.home / "run/edge.sock").stat().st_mode & 0o777 == 0o600
    assert (edge.home / "edge").stat().st_mode & 0o077 == 0


async def test_no_edge_is_told_as_that(edge: RealEdge) -> None:
    client = DSecClient("unix:///nowhere/edge.sock", patience_s=0.0)
    with pytest.raises(errors.EdgeUnreachableError):
        await client.open()
