"""Stateless tasks at a real edge: what goes in and comes out, whose fault an end is, batches."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dsec_runtime import errors
from dsec_runtime.sdk import DSecClient, FncallResult, sync
from dsec_runtime.spec import MIB, EndCause, Environment, FncallTask, Limits, SandboxSpec, Tier
from dsec_runtime.tiers.fncall.settings import FncallSettings
from tests.support import sandboxes as support
from tests.support.edges import PROGRAM, RealEdge, left, real_edge
from tests.support.fncalls import containers, pool, settled, task

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]

MOST = FncallSettings().total


async def test_files_go_in_and_results_come_out(client: DSecClient) -> None:
    result = await client.run_fncall(
        task(
            'cat; cat in/data; echo "$1 $X" > out; mkdir r; printf "\\0" > r/b; pwd; exit 3',
            argv=("one",),
            env={"X": "two"},
            stdin=b"input\n",
            files={"in/data": b"data\n"},
            results=("out", "r/b", "none"),
        )
    )
    assert result.stdout == b"input\ndata\n/task\n"
    assert result.exit_code == 3
    assert isinstance(result.error, errors.CommandFailedError)
    assert result.files == {"out": b"one two\n", "r/b": b"\0"}
    assert list(result.missing) == ["none"]


async def test_long_code_and_a_bare_command(client: DSecClient) -> None:
    long = "#" * 200_000 + '\necho "$1"'
    assert (await client.run_fncall(task(long, argv=("x",)))).text == "x\n"
    assert (await client.run_fncall(task("", argv=("seq", "2")))).text == "1\n2\n"
    missing = await client.run_fncall(task("", argv=("no-such-program",)))
    assert missing.exit_code == 127
    assert isinstance(missing.error, errors.CommandFailedError)


async def test_a_kind_of_the_operator(edge: RealEdge, client: DSecClient) -> None:
    table = edge.home / "edge/kinds.toml"
    table.write_text('[perl]\nscript = ["perl", "{file}"]\nname = "it.pl"\n')
    assert (await client.run_fncall(task("print 6 * 7", kind="perl"))).text == "42"
    table.unlink()
    with pytest.raises(errors.InvalidRequestError, match="perl"):
        await client.run_fncall(task("print 6 * 7", kind="perl"))


async def test_what_stops_a_task_is_told_as_its_own_fault(client: DSecClient) -> None:
    hog = "perl -e '$x = \"a\" x 300_000_000'"
    for code, more, cause, kind in (
        ("sleep 60", {"timeout_s": 0.2}, EndCause.TIMEOUT, errors.CommandTimeoutError),
        ("yes", {"output_limit_bytes": 9999}, EndCause.OUTPUT_LIMIT, errors.OutputLimitError),
        (
            hog,
            {"limits": Limits(memory_bytes=64 * MIB)},
            EndCause.OUT_OF_MEMORY,
            errors.OutOfMemoryError,
        ),
    ):
        result = await client.run_fncall(task(code, **more))
        assert result.end.cause is cause
        assert isinstance(result.error, kind)
        assert len(result.stdout) <= 9999
    large = task("head -c 20000 /dev/zero > r", results=("r",), output_limit_bytes=9999)
    assert list((await client.run_fncall(large)).missing) == ["r"]


async def test_what_is_asked_wrongly_is_refused(client: DSecClient) -> None:
    for wrong in (
        task("true", files={"../x": b""}),
        task("true", kind="cobol"),
        task("true", output_limit_bytes=1 << 30),
        task("true", environment=Environment()),
    ):
        with pytest.raises(errors.InvalidRequestError):
            await client.run_fncall(wrong)
    with pytest.raises(errors.UnknownSandboxError):
        await client.run_fncall(task("true", environment=Environment(reference="base/none:1")))
    with pytest.raises(errors.InvalidRequestError, match="task"):
        await client.create(
            SandboxSpec(tier=Tier.FNCALL, environment=Environment(reference=support.BASE))
        )


async def test_no_network(client: DSecClient) -> None:
    assert (await client.run_fncall(task("ls /sys/class/net; cat /proc/net/route"))).ok
    connect = 'socket(S, 2, 1, 0); connect(S, pack("Sna4x8", 2, 80, "\1\1\1\1")) or die $!'
    result = await client.run_fncall(task("", argv=("perl", "-e", connect)))
    assert "unreachable" in result.stderr.decode()


async def test_a_batch_gives_each_task_its_own_result(client: DSecClient) -> None:
    codes = {0: "exit 4", 1: "sleep 60", 2: ""}
    given = [
        task(codes.get(number, f"echo {number}; cat f"), files={"f": b"%d" % number}, timeout_s=20)
        if number != 1
        else task(codes[1], timeout_s=0.2)
        for number in range(200)
    ]
    results: dict[int, FncallResult] = {}
    async for result in client.run_fncalls(iter(given)):
        assert result.number not in results
        results[result.number] = result
        counts = await pool(client)
        assert sum(counts[each] for each in ("starting", "idle", "busy", "ending")) <= MOST
    assert sorted(results) == list(range(200))
    assert all(results[number].text == f"{number}\n{number}" for number in range(3, 200))
    assert isinstance(results[0].error, errors.CommandFailedError)
    assert isinstance(results[1].error, errors.CommandTimeoutError)
    assert isinstance(results[2].error, errors.InvalidRequestError)
    assert not isinstance(results[2].error, errors.AgentError)


def test_without_await(edge: RealEdge) -> None:
    with sync.DSecClient(edge.address, lease_s=None) as client:
        assert client.run_fncall(task("echo one")).text == "one\n"
        results = client.run_fncalls(task(f"echo {number}") for number in range(20))
        assert sorted(int(result.text) for result in results) == list(range(20))


async def test_each_task_is_on_record(client: DSecClient) -> None:
    await client.run_fncall(task("exit 3", files={"f": b""}))
    with pytest.raises(errors.InvalidRequestError):
        await client.run_fncall(task("true", kind="cobol"))
    refused, ran = list(await client.fncall_log())[-1:-3:-1]
    assert (ran.principal, ran.detail["code"], ran.detail["files"]) == ("local", "exit 3", 1)
    assert (ran.detail["end"], ran.detail["status"]) == ("exited", 3)
    assert (refused.detail["kind"], refused.detail["end"]) == ("cobol", "invalid_request")


async def test_a_batch_of_tasks_that_nobody_finishes_making(client: DSecClient) -> None:
    async def failing() -> AsyncIterator[FncallTask]:
        yield task("true")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        async for _ in client.run_fncalls(failing()):
            pass


async def test_callers_at_once_never_meet(client: DSecClient) -> None:
    meet = "mkdir /tmp/lock || exit 9; sleep 0.02; ls /tmp"
    results = await asyncio.gather(*(client.run_fncall(task(meet)) for _ in range(40)))
    assert {result.text for result in results} == {"lock\n"}


async def test_a_client_that_leaves_ends_its_task(edge: RealEdge, client: DSecClient) -> None:
    await settled(client)
    words = f"sleep\0{4_000_000 + os.getpid()}"  # of other runs of the tests there may be others
    asking = asyncio.create_task(client.run_fncall(task(words.replace("\0", " "))))
    while not processes(words):
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await settled(client)
    assert not processes(words)


def processes(words: str) -> list[Path]:
    """Processes of this machine whose command line begins so."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(words.encode()):
                found.append(path)
        except OSError:
            continue
    return found


def test_the_command_line(edge: RealEdge, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("from a file\n")
    code = tmp_path / "code.sh"
    code.write_text('cat d; echo "$1"; exit 5')
    line = [*PROGRAM, "--home", str(edge.home), "fncall", "--file", f"d={tmp_path}/data"]
    plain = subprocess.run([*line, support.BASE, "--", str(code), "word"], capture_output=True)
    assert (plain.returncode, plain.stdout) == (5, b"from a file\nword\n")
    told = subprocess.run(
        [*line, "--json", "--result", "r", support.BASE, "--", "echo x > r; exit 6"],
        capture_output=True,
    )
    answer = json.loads(told.stdout)
    assert (told.returncode, answer["error"]) == (6, "command_failed")
    assert base64.b64decode(answer["files"]["r"]) == b"x\n"


def test_a_pool_of_one_serves_all_kinds_in_turn() -> None:
    async def ask(edge: RealEdge) -> list[tuple[str, int]]:
        async with edge.client() as client:
            kinds = [Limits(memory_bytes=size * MIB) for size in (48, 64, 48, 64)]
            asked = [client.run_fncall(task("echo done", limits=limits)) for limits in kinds]
            return [
                ((await result).text, len(containers(edge)))
                for result in asyncio.as_completed(asked)
            ]

    with real_edge("--pool", "1") as edge:
        texts, counts = zip(*asyncio.run(ask(edge)), strict=True)
    assert texts == ("done\n",) * 4
    assert max(counts) <= 1  # none while one kind makes room for the next


async def test_a_batch_goes_on_at_the_next_edge(edge: RealEdge) -> None:
    tasks = [task(f"sleep 0.05; echo {number}") for number in range(60)]
    found: list[str] = []
    async with edge.client(patience_s=60.0) as client:
        async for result in client.run_fncalls(tasks):
            found.append(result.text)
            if len(found) in (10, 30):
                await asyncio.to_thread(edge.kill if len(found) == 10 else edge.stop)
                await asyncio.to_thread(edge.start)
    assert sorted(found, key=int) == [f"{number}\n" for number in range(60)]


async def test_no_killed_edge_leaves_a_pool(edge: RealEdge) -> None:
    async with edge.client(patience_s=60.0) as client:
        await client.run_fncall(task("true"))
        asking = asyncio.create_task(client.run_fncall(task("sleep 1; echo done", timeout_s=30)))
        while not (await pool(client))["busy"]:
            await asyncio.sleep(0.01)
        there = containers(edge)
        edge.kill()
        assert there <= containers(edge)
        await asyncio.to_thread(edge.start)
        assert (await asking).text == "done\n"  # a task leaves nothing, so it may be run again
        assert not there & containers(edge)
    await asyncio.to_thread(edge.stop)
    assert left(edge) == []
    await asyncio.to_thread(edge.start)
