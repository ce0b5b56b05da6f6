"""The SDK against a real edge and real containers: the session of the paper, and commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dsec_runtime import errors
from dsec_runtime.sdk import DSecClient, DSecContainerRunArgs, DSecEnvironment, Sandbox, sync
from dsec_runtime.spec import MIB, EndCause, State
from tests.support.edges import RealEdge, args
from tests.support.sandboxes import BASE

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]


@pytest.fixture
async def sandbox(client: DSecClient) -> AsyncIterator[Sandbox]:
    async with await client.run_container(args()) as made:
        yield made


async def test_the_session_of_the_paper(edge: RealEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSEC_EDGE", edge.address)
    client = DSecClient()
    await client.open()
    run_args = DSecContainerRunArgs(
        environment=BASE,
        memory_limit_mb=96,
        cpu_cores_limit=0.5,
        ttl_running_stop=600,
        network_rules={"npm": False, "pypi": True},
        init_user="65534",
    )
    sandbox = await client.run_container(run_args, timeout=120)
    result = await sandbox.run_shell("echo hello world; id -u")
    assert (result.text, result.exit_code) == ("hello world\n65534\n", 0)
    ended = await sandbox.stop()
    assert ended.state is State.STOPPED
    await client.close()


async def test_what_the_network_cannot_do_is_refused_by_name(client: DSecClient) -> None:
    with pytest.raises(errors.SandboxError, match="no-such-service"):
        await client.run_container(args(network_rules={"npm": False, "no-such-service": True}))
    assert await client.list() == []


async def test_layers_are_stacked_as_they_are_named(client: DSecClient) -> None:
    async with await client.run_container(args(environment=DSecEnvironment(base=BASE))) as made:
        assert len(made.info.digests) == 1
        assert (await made.run_shell("echo up")).text == "up\n"


async def test_an_environment_that_is_not_there(client: DSecClient) -> None:
    with pytest.raises(errors.SandboxError, match="env/nothing"):
        await client.run_container(args(environment="env/nothing:v1"))
    assert await client.list() == []


async def test_argv_environment_directory_user_and_input(sandbox: Sandbox) -> None:
    result = await sandbox.exec(
        ["sh", "-c", 'printf "%s|" "$@" "$A" "$PWD" "$(id -u)"; cat', "sh", "a b", "$c", ""],
        env={"A": "x\ny"},
        cwd="/tmp",
        user="1000:1000",
        stdin="the input",
        check=True,
    )
    assert result.text == "a b|$c||x\ny|/tmp|1000|the input"


async def test_input_is_empty_unless_given(sandbox: Sandbox) -> None:
    assert (await sandbox.run_shell("cat; echo end", timeout=20)).text == "end\n"


async def test_streams_are_apart_unless_merged(sandbox: Sandbox) -> None:
    line = "echo out; echo err >&2"
    apart = await sandbox.run_shell(line)
    assert (apart.stdout, apart.stderr) == (b"out\n", b"err\n")
    merged = await sandbox.exec(["sh", "-c", line], merge=True)
    assert (merged.stdout, merged.stderr) == (b"out\nerr\n", b"")


async def test_output_comes_as_it_is_written(sandbox: Sandbox) -> None:
    """The command waits for what is done when its first line has come."""
    seen: list[bytes] = []

    async def answer(data: bytes) -> None:
        seen.append(data)
        if len(seen) == 1:
            await sandbox.run_shell("touch /tmp/go")

    result = await sandbox.run_shell(
        "echo one; until test -e /tmp/go; do sleep 0.05; done; echo two",
        on_stdout=answer,
        timeout=60,
    )
    assert b"".join(seen) == b"one\ntwo\n"
    assert (result.ok, result.stdout) == (True, b"")


async def test_much_output_arrives_whole(sandbox: Sandbox) -> None:
    result = await sandbox.run_shell("seq 1 400000", check=True)
    assert result.stdout == b"".join(b"%d\n" % number for number in range(1, 400001))
    assert result.end.stdout_bytes == len(result.stdout)


@pytest.mark.parametrize(
    ("argv", "status"), [(["/no/such/program"], 127), (["/etc"], 126), (["nosuch"], 127)]
)
async def test_programs_that_cannot_run(sandbox: Sandbox, argv: list[str], status: int) -> None:
    result = await sandbox.exec(argv)
    assert result.exit_code == status
    assert isinstance(result.error, errors.CommandFailedError)


async def test_a_timeout_kills_all_that_was_started(sandbox: Sandbox) -> None:
    result = await sandbox.run_shell("echo begun; (sleep 987 &) ; sleep 987", timeout=1.5)
    assert result.end.cause is EndCause.TIMEOUT
    assert result.stdout == b"begun\n"
    with pytest.raises(errors.CommandTimeoutError):
        result.check()
    running = await sandbox.run_shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep" not in running.text


async def test_endless_output_is_cut(sandbox: Sandbox) -> None:
    result = await sandbox.exec(["yes"], output_limit=1 * MIB, timeout=60)
    assert result.end.cause is EndCause.OUTPUT_LIMIT
    assert len(result.stdout) <= MIB
    assert isinstance(result.error, errors.OutputLimitError)


async def test_out_of_memory_says_who_and_at_which_limit(sandbox: Sandbox) -> None:
    hog = 'my $x = ""; for (1..64) { $x .= "a" x (4 << 20); } print length($x)'
    result = await sandbox.exec(["perl", "-e", hog], timeout=60)
    assert result.end.cause is EndCause.OUT_OF_MEMORY
    error = result.error
    assert isinstance(error, errors.OutOfMemoryError)
    assert error.detail["process"] == "perl"
    assert error.detail["limit_bytes"] == 96 * MIB
    assert (await sandbox.run_shell("echo alive")).text == "alive\n"
    assert any(event.kind == "out-of-memory" for event in await sandbox.log())


async def test_a_full_disk_is_the_agents_own_affair(sandbox: Sandbox) -> None:
    result = await sandbox.run_shell("dd if=/dev/zero of=/fill bs=1M count=200", timeout=60)
    assert result.exit_code == 1
    assert b"No space left" in result.stderr
    assert isinstance(result.error, errors.AgentError)


async def test_background_children_live_on_and_hold_nobody_up(sandbox: Sandbox) -> None:
    result = await sandbox.run_shell("(sleep 60; echo late) & echo now", timeout=30)
    assert result.text == "now\n"
    assert "sleep 60" in (await sandbox.run_shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).text


async def test_a_cancelled_call_kills_its_command(sandbox: Sandbox) -> None:
    begun = asyncio.Event()
    call = asyncio.create_task(
        sandbox.run_shell("echo x; sleep 765", on_stdout=lambda _: begun.set())
    )
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(command.running for command in await sandbox.commands())


async def test_one_that_is_left_alone_and_found_again(client: DSecClient, sandbox: Sandbox) -> None:
    process = await sandbox.start(["sh", "-c", "seq 1 5; read x; echo got $x"], stdin=True)
    first = await anext(aiter(process))
    read, _ = process.offsets
    assert read == first.offset + len(first.data)
    await process.detach()
    again = await (await client.get(sandbox.id)).attach(process.id, stdout_offset=2)
    await again.write("it\n")
    result = await again.collect()
    assert result.stdout == b"2\n3\n4\n5\ngot it\n"
    ended = await sandbox.attach(process.id)
    assert (await ended.collect()).stdout == b"1\n2\n3\n4\n5\ngot it\n"


async def test_a_terminal(sandbox: Sandbox) -> None:
    async with await sandbox.start(["sh"], pty=(31, 97)) as process:
        size = (
            r"""perl -e 'ioctl(STDIN, 0x5413, $b = "x" x 8); printf "%d %d\n", unpack "SS", $b'"""
        )
        await process.write(f"{size}; test -t 0 && echo is a tty; read x; {size}; exit 7\n")
        seen = b""
        async for piece in process:
            seen += piece.data
            if b"\nis a tty\r\n" in seen:
                await process.resize(40, 120)
                await process.write("\n")
                break
        result = await process.collect()
    assert b"\n31 97\r\n" in seen
    assert b"40 120\r\n" in result.stdout
    assert result.exit_code == 7


async def test_signals_and_kills(sandbox: Sandbox) -> None:
    trap = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    async with await sandbox.start(["sh", "-c", trap]) as process:
        assert (await anext(aiter(process))).data == b"ready\n"
        await process.signal(15)
        result = await process.collect()
        assert (result.stdout, result.exit_code) == (b"caught\n", 5)
    async with await sandbox.start(["sleep", "1000"]) as process:
        await process.kill()
        assert (await process.wait()).cause is EndCause.KILLED


async def test_a_shell_keeps_directory_variables_and_functions(sandbox: Sandbox) -> None:
    async with await sandbox.shell(cwd="/tmp") as shell:
        assert (await shell.run("mkdir -p d; cd d; A=1; export B=2; f() { echo f$A; }")).ok
        assert (await shell.run("pwd; f; sh -c 'echo $A$B'")).text == "/tmp/d\nf1\n2\n"
        assert (await shell.run("false")).exit_code == 1
        assert (
            await shell.run("printf 'no end of line'; printf e >&2")
        ).stdout == b"no end of line"
        assert (await shell.run('cat; echo "it\'s"')).text == "it's\n"
        odd = await shell.run("if")
        assert odd.exit_code != 0
        ended = await shell.run("exit 9")
        assert (ended.exit_code, shell.ended) == (9, True)
        with pytest.raises(errors.StateConflictError):
            await shell.run("true")


async def test_a_shell_that_takes_too_long_is_killed_with_its_command(sandbox: Sandbox) -> None:
    async with await sandbox.shell() as shell:
        with pytest.raises(errors.CommandTimeoutError):
            await shell.run("sleep 432", timeout=0.3)
    assert not any(command.running for command in await sandbox.commands())


def test_the_same_without_await(edge: RealEdge) -> None:
    with (
        sync.DSecClient(edge.address, lease_s=None) as client,
        client.run_container(args()) as sandbox,
    ):
        assert sandbox.run_shell("echo hello world").text == "hello world\n"
        with sandbox.start(["cat"], stdin=True) as process:
            process.write("in")
            process.close_stdin()
            assert [piece.data for piece in process] == [b"in"]
        with sandbox.shell() as shell:
            shell.run("cd /tmp")
            assert shell.run("pwd").text == "/tmp\n"
        sandbox.files.write("/srv/f", "text")
        assert sandbox.files.read_text("/srv/f") == "text"
        with sandbox.files.watch("/srv") as changes:
            sandbox.files.remove("/srv/f")
            assert next(changes).path == "f"
        (fork,) = sandbox.fork()
        assert fork.stop().state is State.STOPPED
        assert sandbox.log()[0].kind == "created"
