"""Commands in trouble: trees, limits, input, terminals, users."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.channel import Channel, Output, Process
from dsec_runtime.errors import CommandFailedError, UnknownSandboxError
from dsec_runtime.spec import EndCause, ExecSpec
from tests.support import agents

pytestmark = pytest.mark.root


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[agents.Agent]:
    with agents.running(tmp_path) as running:
        yield running


def shell(script: str, **more: object) -> ExecSpec:
    return ExecSpec(argv=("bash", "-c", script), **more)  # type: ignore[arg-type]


async def output(process: Process) -> bytes:
    return b"".join([piece.data async for piece in process])


async def run(channel: Channel, name: str, spec: ExecSpec) -> bytes:
    process = await channel.exec(spec, name)
    data = await output(process)
    assert (await process.wait()).status == 0, data
    return data


def test_a_child_in_the_background_keeps_nobody_waiting_and_goes_on(
    agent: agents.Agent, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "done")

    async def life(channel: Channel) -> None:
        # The child writes much more than a pipe holds after the command has ended.
        script = (
            f"(read < {tmp_path}/go; yes | head -c 1000000; echo fine > {tmp_path}/done) & echo now"
        )
        process = await channel.exec(shell(script), "one")
        assert await output(process) == b"now\n"
        assert (await process.wait()).status == 0
        (listed,) = await channel.processes()
        assert (listed.running, listed.background) == (False, True)
        (tmp_path / "go").write_text("\n")
        assert await asyncio.to_thread((tmp_path / "done").read_text) == "fine\n"

    agents.talk(agent, life)


def test_all_output_of_the_command_itself_comes_before_its_end(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        script = "(sleep 100) & seq 20000; seq 20000 >&2"
        process = await channel.exec(shell(script, keep_bytes=4096), "one")
        pieces = [piece async for piece in process]
        whole = "".join(f"{number}\n" for number in range(1, 20001)).encode()
        for stream in ("stdout", "stderr"):
            assert b"".join(p.data for p in pieces if p.stream == stream) == whole
        await process.kill()
        assert agent.processes() == []

    agents.talk(agent, life)


_DAEMONS = (
    "setsid sleep 100 & (setsid bash -c 'sleep 100 & sleep 101 & wait' &) ; nohup sleep 102 &"
)


def test_a_timeout_kills_the_whole_tree(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        process = await channel.exec(shell(f"{_DAEMONS} wait", timeout_s=0.3), "one")
        end = await process.wait()
        assert (end.cause, end.signal) == (EndCause.TIMEOUT, signal.SIGKILL)
        await process.kill()  # returns when all is gone
        assert agent.processes() == []

    agents.talk(agent, life)


def test_a_pause_is_not_counted_against_a_timeout(agent: agents.Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")

    async def life(channel: Channel) -> None:
        process = await channel.exec(shell(f"read < {tmp_path}/go", timeout_s=2), "one")
        os.kill(agent.pid, signal.SIGSTOP)
        await asyncio.sleep(3.5)
        os.kill(agent.pid, signal.SIGCONT)
        await channel.ping()
        (tmp_path / "go").write_text("on\n")
        end = await process.wait()
        assert (end.cause, end.status) == (EndCause.EXITED, 0)

    agents.talk(agent, life)


def test_a_kill_takes_what_an_ended_command_left(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        process = await channel.exec(shell(_DAEMONS), "one")
        other = await channel.exec(ExecSpec(argv=("sleep", "100")), "other")
        assert (await process.wait()).cause is EndCause.EXITED
        await channel.kill("one")
        assert (await channel.processes())[1].running
        await other.kill()
        assert (await other.wait()).cause is EndCause.KILLED
        with pytest.raises(UnknownSandboxError):
            await channel.kill("none")
        assert agent.processes() == []

    agents.talk(agent, life)


def test_a_bomb_of_forks_is_killed(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        script = "ulimit -u 400; bomb() { bomb | bomb & }; bomb 2> /dev/null; sleep 100"
        process = await channel.exec(shell(script, user="65530", timeout_s=0.5), "one")
        assert (await process.wait()).cause is EndCause.TIMEOUT
        await process.kill()
        assert agent.processes() == []
        await run(channel, "two", ExecSpec(argv=("true",)))

    agents.talk(agent, life)


def test_killing_the_supervisor_ends_the_command_and_nothing_else(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        process = await channel.exec(shell(f"{_DAEMONS} kill -9 $PPID; sleep 100"), "one")
        end = await process.wait()
        assert (end.cause, end.signal) == (EndCause.SIGNALLED, signal.SIGKILL)
        await run(channel, "two", ExecSpec(argv=("true",)))
        await channel.kill("two")  # waits for orphans, too
        assert agent.processes() == []

    agents.talk(agent, life)


@pytest.mark.parametrize(("on_limit", "cause"), [("kill", "output_limit"), ("drop", "timeout")])
def test_yes_is_capped(agent: agents.Agent, on_limit: str, cause: str) -> None:
    async def life(channel: Channel) -> None:
        limit = 1_000_000
        spec = shell("yes; sleep 9", output_limit_bytes=limit, on_limit=on_limit, timeout_s=1)
        process = await channel.exec(spec, "one")
        assert len(await output(process)) == limit
        end = await process.wait()
        assert end.cause == cause
        assert end.stdout_bytes > limit

    agents.talk(agent, life)


def test_input_is_empty_unless_asked_for(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        assert await run(channel, "one", ExecSpec(argv=("cat",))) == b""
        content = os.urandom(3 << 20)
        process = await channel.exec(ExecSpec(argv=("cat",), stdin=True), "two")
        reading = asyncio.ensure_future(output(process))
        await process.write_stdin(content)
        process.close_stdin()
        assert await reading == content
        assert (await process.wait()).stdout_bytes == len(content)

    agents.talk(agent, life)


def test_input_that_nobody_reads_is_dropped_with_the_command(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        process = await channel.exec(shell("exec <&-; echo closed; sleep 0.1", stdin=True), "one")
        await process.write_stdin(b"x" * (2 << 20))
        assert await output(process) == b"closed\n"
        assert (await process.wait()).status == 0

    agents.talk(agent, life)


async def until(pieces: list[Output], process: Process, word: bytes) -> None:
    async for piece in process:
        pieces.append(piece)
        if word in b"".join(one.data for one in pieces):
            return


def test_a_terminal_has_its_size_and_its_keys(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        script = "stty size; tty; read -r; stty size; read -r; echo got $REPLY; cat; echo over"
        process = await channel.exec(shell(script, pty=(33, 99)), "one")
        pieces: list[Output] = []
        await until(pieces, process, b"/dev/pts/")
        process.resize(44, 111)
        await process.write_stdin(b"\r")
        await until(pieces, process, b"44 111")
        await process.write_stdin(b"words\r")
        await until(pieces, process, b"got words")
        process.close_stdin()
        await until(pieces, process, b"over")
        end = await process.wait()
        assert end.status == 0
        text = b"".join(piece.data for piece in pieces)
        assert text.startswith(b"33 99\r\n")
        assert {piece.stream for piece in pieces} == {"stdout"}
        # The interrupt key ends what runs in the foreground.
        process = await channel.exec(shell("echo on; sleep 100", pty=(10, 10)), "two")
        await until([], process, b"on")
        await process.write_stdin(b"\x03")
        assert (await process.wait()).status == 128 + signal.SIGINT

    agents.talk(agent, life)


def test_a_command_begins_clean(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        files = await run(channel, "one", ExecSpec(argv=("ls", "-l", "/proc/self/fd")))
        assert [line.split()[8] for line in files.decode().splitlines()[1:]] == ["0", "1", "2", "3"]
        status = await run(channel, "two", ExecSpec(argv=("cat", "/proc/self/status")))
        fields = dict(line.split(":", 1) for line in status.decode().splitlines())
        for name in ("SigBlk", "SigIgn", "SigCgt"):
            assert int(fields[name], 16) == 0, name
        env = await run(channel, "three", ExecSpec(argv=("env",), env={"A": "b"}))
        assert {line.split("=")[0] for line in env.decode().splitlines()} == {
            *("A", "PATH", "HOME", "USER")
        }
        ids = await run(channel, "four", shell("ps -o pid=,pgid=,sid= -p $$"))
        assert len(set(ids.split())) == 1

    agents.talk(agent, life)


@pytest.fixture
def peopled(tmp_path: Path) -> Iterator[agents.Agent]:
    (tmp_path / "passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nbroken\nann:x:1001:1002:,,,:/home/ann:/bin/sh\n"
    )
    (tmp_path / "group").write_text("root:x:0:\nwheel:x:70:bob,ann\nann:x:1002:\nvideo:x:71:ann\n")
    binds = f"mount --bind {tmp_path}/passwd /etc/passwd; mount --bind {tmp_path}/group /etc/group"
    prefix = ("bash", "-c", f'{binds}; exec "$@"', "-")
    with agents.running(tmp_path, prefix=prefix) as running:
        yield running


@pytest.mark.parametrize(
    ("user", "ids", "home"),
    [
        ("ann", "1001 1002 1002 70 71", "/home/ann"),
        ("1001", "1001 1002 1002 70 71", "/home/ann"),
        ("ann:wheel", "1001 70 70", "/home/ann"),
        ("4242", "4242 0 0", "/"),
        ("4242:4343", "4242 4343 4343", "/"),
        ("", "0 0 0", "/root"),
        (None, "0 0 0", "/root"),
    ],
)
def test_users_are_those_of_the_sandbox(
    peopled: agents.Agent, user: str | None, ids: str, home: str
) -> None:
    async def life(channel: Channel) -> None:
        script = "echo $(id -u) $(id -g) $(id -G); echo $HOME; grep CapEff /proc/self/status"
        lines = (await run(channel, "one", shell(script, user=user))).decode().splitlines()
        assert lines[:2] == [ids, home]
        assert (int(lines[2].split()[1], 16) == 0) == bool(user)
        with pytest.raises(CommandFailedError, match="user"):
            await channel.exec(shell("true", user="bob"), "two")

    agents.talk(peopled, life)


def test_a_passwd_that_is_no_file_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "passwd")
    prefix = ("bash", "-c", f'mount --bind {tmp_path}/passwd /etc/passwd; exec "$@"', "-")
    with agents.running(tmp_path, prefix=prefix) as agent:

        async def life(channel: Channel) -> None:
            # Not bash, which looks into it.
            spec = ExecSpec(argv=("sh", "-c", "echo on"), user="7")
            assert await run(channel, "one", spec) == b"on\n"

        agents.talk(agent, life)


def test_terminating_the_agent_ends_the_sandbox(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        # From inside it is ignored.
        await run(channel, "one", shell("kill 1; kill -9 1; kill -INT 1"))
        await channel.ping()
        process = await channel.exec(
            shell("trap 'echo ending; exit 3' TERM; echo on; while :; do sleep 0.01; done"), "two"
        )
        await until([], process, b"on")
        os.kill(agent.pid, signal.SIGTERM)
        pieces: list[Output] = []
        await until(pieces, process, b"ending")
        assert (await process.wait()).status == 3

    agents.talk(agent, life)
    agent.wait()
