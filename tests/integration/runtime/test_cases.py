"""Neighbours of the cases of docs/cases.md that no other file has: commands, ends, clones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from dsec_layers.api import looking
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_runtime import errors
from dsec_runtime.sdk import DSecClient, Sandbox
from dsec_runtime.sdk.results import ExecResult
from dsec_runtime.spec import EndCause, State
from tests.support.edges import RealEdge, args
from tests.support.fncalls import task

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]
Ask = Callable[[Sandbox], Awaitable[object]]
# In a session of its own, and nobody's child.
_AWAY = "perl -e 'fork and exit; syscall(112) > 0 or die; exec qw(sleep), @ARGV'"
_PROCESSES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"


@pytest.fixture
async def sandbox(client: DSecClient) -> AsyncIterator[Sandbox]:
    async with await client.run_container(args(labels={"job": "17"})) as made:
        yield made


async def in_a_shell(sandbox: Sandbox, script: str) -> ExecResult:
    async with await sandbox.shell() as shell:
        return await shell.run(script, timeout=60)


async def on_a_terminal(sandbox: Sandbox, script: str) -> ExecResult:
    async with await sandbox.start(["sh", "-c", script], pty=(24, 80)) as process:
        return await process.collect()


@pytest.mark.parametrize("run", [Sandbox.run_shell, in_a_shell, on_a_terminal])
@pytest.mark.parametrize("child", ["sleep 1000", "yes", f"{_AWAY} 1000"])
async def test_no_child_in_the_background_holds_an_end_up(
    sandbox: Sandbox, run: Callable[[Sandbox, str], Awaitable[ExecResult]], child: str
) -> None:
    """Nor one that goes on writing to the same stream."""
    result = await run(sandbox, f"({child}) & echo now")
    assert "now" in result.text
    assert result.exit_code == 0


async def test_no_child_in_the_background_holds_a_task_up(client: DSecClient) -> None:
    result = await client.run_fncall(task("(yes) & (sleep 1000) & cat; echo now", timeout_s=60))
    assert "now\n" in result.text


async def test_a_timeout_reaches_what_left_its_session_and_heeds_no_signal(
    sandbox: Sandbox,
) -> None:
    deaf = f"trap '' TERM INT HUP; {_AWAY} 4321 & {_AWAY} 4321; sleep 4321"
    result = await sandbox.run_shell(deaf, timeout=0.5)
    assert result.end.cause is EndCause.TIMEOUT
    assert "sleep 4321" not in (await sandbox.run_shell(_PROCESSES)).text


async def test_out_of_memory_of_what_a_command_started_is_told_too(sandbox: Sandbox) -> None:
    """As `make` does: it survives its compiler, and ends with a status of its own."""
    hog = "perl -e '$x .= chr(97) x (4 << 20) for 1 .. 64; print length($x)' || exit 2"
    result = await sandbox.run_shell(hog, timeout=60)
    assert (result.end.cause, result.exit_code) == (EndCause.EXITED, 2)
    assert isinstance(result.error, errors.OutOfMemoryError)
    assert result.error.detail["process"] == "perl"
    innocent = await sandbox.run_shell("exit 2")
    assert isinstance(innocent.error, errors.CommandFailedError)


async def test_a_renewal_and_an_end_have_one_winner(client: DSecClient) -> None:
    """Whoever was told that it lives on finds it alive."""
    made = await asyncio.gather(*(client.run_container(args(ttl_age_stop=2.0)) for _ in range(6)))

    async def renew(sandbox: Sandbox, number: int) -> bool:
        ends_s = sandbox.info.created_s + 2.0
        await asyncio.sleep(max(0.0, ends_s - time.time() + number * 0.25))
        try:
            await sandbox.set_ttl(age_stop=600.0)
        except errors.StateConflictError:
            return False
        return True

    renewed = await asyncio.gather(*(renew(each, number) for number, each in enumerate(made)))
    for sandbox, lives in zip(made, renewed, strict=True):
        if lives:
            assert (await sandbox.run_shell("echo here")).text == "here\n"
            await sandbox.stop()
            continue
        with contextlib.suppress(errors.SandboxError):
            async for _ in sandbox.events():
                pass
        assert "old" in ((await sandbox.refresh()).reason or "")
        with pytest.raises(errors.StateConflictError):
            await sandbox.run_shell("true")


async def test_being_paused_has_a_limit_of_its_own(client: DSecClient) -> None:
    sandbox = await client.run_container(args(ttl_running_stop=600.0, ttl_paused_stop=1.0))
    await sandbox.pause()
    with contextlib.suppress(errors.SandboxError):
        async for _ in sandbox.events():
            pass
    info = await sandbox.refresh()
    assert (info.state, info.reason) == (State.STOPPED, "it was paused for 1 s")


async def test_what_is_known_of_a_paused_one_is_kept_found_and_changed(
    client: DSecClient, sandbox: Sandbox
) -> None:
    before = await sandbox.refresh()
    await sandbox.pause()
    await sandbox.set_labels({"step": "3"})
    (found,) = await client.list(labels={"job": "17", "step": "3"})
    assert (found.state, found.id) == (State.PAUSED, sandbox.id)
    assert (found.spec.environment, found.digests) == (before.spec.environment, before.digests)
    await sandbox.resume()
    assert (await sandbox.refresh()).spec.labels == {"job": "17", "step": "3"}


async def _in_a_new_shell(sandbox: Sandbox) -> None:
    async with await sandbox.shell() as shell:
        await shell.run("true")


@pytest.mark.parametrize(
    "ask",
    [
        lambda it: it.run_shell("true"),
        lambda it: it.start(["true"]),
        _in_a_new_shell,
        lambda it: it.files.read("/etc/passwd"),
        lambda it: it.files.write("/x", b""),
        lambda it: it.files.exists("/x"),
        lambda it: it.pause(),
        lambda it: it.fork(),
        lambda it: it.snapshot("workspace/of/nothing:1"),
        lambda it: it.usage(),
    ],
)
async def test_nothing_that_a_dead_one_answers_is_the_agent_s_fault(
    lost: Sandbox, ask: Ask
) -> None:
    """Nor a state that it is in: it is told as the loss that it is."""
    with pytest.raises(errors.LostError) as caught:
        await ask(lost)
    assert not isinstance(caught.value, errors.AgentError)
    assert "first process" in caught.value.message


@pytest.fixture
async def lost(edge: RealEdge, client: DSecClient) -> Sandbox:
    sandbox = await client.run_container(args())
    os.kill(int((edge.home / "run/sandboxes" / sandbox.id / "pid").read_text()), signal.SIGKILL)
    while (await sandbox.refresh()).state is not State.LOST:
        await asyncio.sleep(0.02)
    return sandbox


async def test_the_clock_is_right_after_a_pause(sandbox: Sandbox) -> None:
    """And a command's own time stood still."""
    async with await sandbox.start(
        ["sh", "-c", "read x; perl -e 'print time'"], stdin=True
    ) as process:
        await sandbox.pause()
        await asyncio.sleep(2.0)
        before = int(time.time())
        await process.write("\n")
        assert before <= int((await process.collect()).text) <= time.time()


async def test_clones_share_no_random_numbers_and_no_identity(
    edge: RealEdge, sandbox: Sandbox
) -> None:
    ask = "cat /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom"
    forks = await sandbox.fork(2)
    try:
        drawn = await asyncio.gather(*(each.run_shell(ask) for each in (sandbox, *forks)))
        assert len({each.stdout[:37] for each in drawn}) == 3
        assert len({each.stdout[37:] for each in drawn}) == 3
        assert len({each.id for each in (sandbox, *forks)}) == 3
        owners = [
            os.stat(f"/proc/{(edge.home / 'run/sandboxes' / each.id / 'pid').read_text()}").st_uid
            for each in (sandbox, *forks)
        ]
        assert len(set(owners)) == 3
    finally:
        for fork in forks:
            await fork.stop()


async def test_a_verifier_shares_nothing_that_the_agent_can_write(
    client: DSecClient, sandbox: Sandbox
) -> None:
    """A sandbox of the same layers, another of what the agent wrote, and a task."""
    forge = (
        "mkdir -p /verifier; for f in /verifier/reward /tmp/reward /dev/shm/reward /etc/passwd;"
        "do echo 1 > $f; done; printf '#!/bin/sh\\necho forged\\n' > /bin/head; chmod 755 /bin/head"
    )
    await sandbox.run_shell(forge, check=True)
    look = "cat /verifier/reward /tmp/reward /dev/shm/reward; head -n 1 /etc/passwd"
    async with await client.run_container(args()) as verifier:
        seen = await verifier.run_shell(look)
        assert seen.text.startswith("root:")
        await sandbox.snapshot("workspace/solved/it:1")
        await sandbox.run_shell("echo 2 > /verifier/reward", check=True)
        assert (await verifier.run_shell(look)).text == seen.text
    async with await client.run_container(args(environment="workspace/solved/it:1")) as fresh:
        await fresh.run_shell("echo 0 > /verifier/reward", check=True)
        await sandbox.run_shell("echo 3 > /verifier/reward", check=True)
        assert (await fresh.run_shell("cat /verifier/reward")).text == "0\n"
    assert (await client.run_fncall(task(look))).text.startswith("root:")


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    who = [f"GIT_{who}_{what}=t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    return subprocess.run(
        ["env", *who, "HOME=/nonexistent", "git", "-C", str(folder), *words],
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.peers("git")
async def test_no_later_commit_is_in_a_scrubbed_workspace(
    edge: RealEdge, client: DSecClient, sandbox: Sandbox, tmp_path: Path
) -> None:
    for words in ("init -q -b main", "commit -q --allow-empty -m one", "checkout -q -b later"):
        git(tmp_path, *words.split())
    (tmp_path / "answer").write_text("the fix\n")
    for words in ("add answer", "commit -q -m fix", "checkout -q main"):
        git(tmp_path, *words.split())
    fix, head = (git(tmp_path, "rev-parse", it).stdout.strip() for it in ("later", "main"))
    (tmp_path / "note").write_text("never committed\n")
    loose = git(tmp_path, "hash-object", "-w", "note").stdout.strip()
    await sandbox.files.upload(str(tmp_path), "/workspace/project")
    bench, whole, reference = Workbench(edge.home), "workspace/whole:1", "workspace/scrubbed:1"
    await sandbox.snapshot(whole)
    kept = looking.tree(bench, Reference.parse(whole)).by_path()
    objects = [f"workspace/project/.git/objects/{it[:2]}/{it[2:]}" for it in (fix, loose)]
    assert [it.encode() in kept for it in objects] == [True, False]
    await sandbox.run_shell("cd /workspace; echo x > left; echo x > dropped", check=True)
    await sandbox.snapshot(reference, scrub_git=True, drop=["workspace/dropped"])
    async with await client.run_container(args(environment=reference)) as fresh:
        await fresh.files.download("/workspace/project", str(tmp_path / "back"))
        assert not await fresh.files.exists("/workspace/dropped")
        assert await fresh.files.exists("/workspace/left")
    back = tmp_path / "back"
    assert git(back, "rev-parse", "HEAD").stdout.strip() == head
    assert git(back, "cat-file", "-e", fix).returncode != 0
    assert git(back, "fsck", "--full").returncode == 0
    (config,) = looking.inspect(bench, Reference.parse(reference)).configs
    told = config.provenance.residue
    assert told is not None
    assert [each.path for each in told.git] == ["workspace/project"]
