"""The life of sandboxes at a real edge: creation, pause, limits of time, owners, forks, losses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import msgspec
import pytest

from dsec_runtime import errors
from dsec_runtime.sdk import DSecClient, Sandbox
from dsec_runtime.sdk.transport import Transport
from dsec_runtime.spec import SandboxInfo, State
from tests.support.edges import RealEdge, args, left

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]


@pytest.fixture
async def sandbox(client: DSecClient) -> AsyncIterator[Sandbox]:
    async with await client.run_container(args(labels={"job": "17"})) as made:
        yield made


async def ended(sandbox: Sandbox) -> SandboxInfo:
    """Wait for its end, by its events."""
    with contextlib.suppress(errors.SandboxError):
        async for _ in sandbox.events():
            pass
    return await sandbox.refresh()


async def test_a_reply_that_is_lost_makes_nothing_twice(edge: RealEdge, client: DSecClient) -> None:
    spec = args().spec()
    lossy = Losing(edge)
    info = await lossy.call("POST", "/v1/sandboxes", SandboxInfo, spec, key="the-key")
    await lossy.close()
    assert lossy.lost == 2
    assert [each.id for each in await client.list()] == [info.id]
    other = msgspec.structs.replace(spec, hostname="other")
    with pytest.raises(errors.StateConflictError):
        await client.create(other, key="the-key")
    assert (await client.create(spec, key="the-key")).id == info.id
    await (await client.get(info.id)).stop()


class Losing(Transport):
    """A client whose first two replies are lost on their way."""

    def __init__(self, edge: RealEdge) -> None:
        super().__init__(edge.client().address)
        self.lost = 0
        send = self._http.request

        @contextlib.asynccontextmanager
        async def losing(*words: object, **options: object) -> AsyncIterator[object]:
            async with send(*words, **options) as response:  # type: ignore[arg-type]
                if self.lost < 2:
                    self.lost += 1
                    raise ConnectionResetError("lost on its way")
                yield response

        self._http.request = losing  # type: ignore[method-assign, assignment]


async def test_twenty_pauses_keep_files_processes_sockets_and_labels(sandbox: Sandbox) -> None:
    script = "echo file > /tmp/f; n=0; while read x; do n=$((n+1)); echo $n $x $(cat /tmp/f); done"
    async with await sandbox.start(["sh", "-c", script], stdin=True) as process:
        output = aiter(process)
        for number in range(1, 21):
            await sandbox.pause()
            assert (await sandbox.refresh()).state is State.PAUSED
            await process.write(f"turn{number}\n")  # which resumes it
            assert (await anext(output)).data.decode() == f"{number} turn{number} file\n"
            info = await sandbox.refresh()
            assert (info.state, info.spec.labels) == (State.RUNNING, {"job": "17"})


async def test_any_request_to_a_paused_one_resumes_it(sandbox: Sandbox) -> None:
    await sandbox.pause()
    assert (await sandbox.run_shell("echo awake")).text == "awake\n"
    await sandbox.pause()
    assert await sandbox.commands()
    assert (await sandbox.refresh()).state is State.RUNNING
    await sandbox.pause()
    assert (await sandbox.usage()).memory_bytes > 0
    assert (await sandbox.refresh()).state is State.PAUSED  # to measure is not to use


async def test_idling_ends_it_and_pausing_stops_that_clock(client: DSecClient) -> None:
    paused = await client.run_container(args())
    await paused.pause()
    await paused.set_ttl(running_stop=1.0)
    idle = await client.run_container(args(ttl_running_stop=1.0))
    info = await ended(idle)
    assert (info.state, info.reason) == (State.STOPPED, "it was idle for 1 s")
    assert (await paused.refresh()).state is State.PAUSED
    with pytest.raises(errors.StateConflictError, match="idle"):
        await idle.run_shell("true")
    async with await paused.start(["cat"], stdin=True) as process:  # in use, it does not idle
        await process.write("here\n")
        assert (await anext(aiter(process))).data == b"here\n"
        await paused.set_ttl(running_stop=None)
    assert (await paused.refresh()).ends_s is None
    await paused.stop()


async def test_sandboxes_end_when_their_owner_has_died(edge: RealEdge) -> None:
    async with edge.client(owner="trainer", lease_s=3.0) as owner, edge.client() as other:
        mine = await owner.run_container(args())
        free = await other.run_container(args())
        await asyncio.sleep(4)  # it lives, and renews
        assert (await mine.refresh()).state is State.RUNNING
        watched = await other.get(mine.id)
        ending = asyncio.create_task(ended(watched))
        await owner.close()
        info = await ending
        assert info.state is State.STOPPED
        assert "trainer" in (info.reason or "")
        assert (await free.stop()).reason == "stopped by local"


async def test_only_one_of_many_claims_it_and_the_others_are_fenced_off(
    edge: RealEdge, sandbox: Sandbox
) -> None:
    async def claim(name: str) -> str | None:
        async with edge.client(owner=name, lease_s=60.0) as client:
            try:
                found = await client.get(sandbox.id)
                await found.claim(name)
            except errors.StateConflictError:
                return None
            return name

    won = [name for name in await asyncio.gather(*map(claim, "abcdefgh")) if name]
    assert len(won) == 1
    async with edge.client(owner="stranger", lease_s=60.0) as stranger:
        with pytest.raises(errors.StateConflictError, match=f"belongs to {won[0]}"):
            await stranger.get(sandbox.id)
    async with edge.client(owner=won[0], lease_s=60.0) as winner:
        assert (await (await winner.get(sandbox.id)).run_shell("echo mine")).text == "mine\n"


async def test_labels_are_set_and_found(client: DSecClient, sandbox: Sandbox) -> None:
    await sandbox.set_labels({"job": None, "step": "3"})
    assert (await sandbox.refresh()).spec.labels == {"step": "3"}
    assert [info.id for info in await client.list(labels={"step": "3"})] == [sandbox.id]
    assert await client.list(labels={"job": "17"}) == []


async def test_forks_share_the_past_and_not_the_future(sandbox: Sandbox) -> None:
    await sandbox.run_shell("echo before > /root-file", check=True)
    forks = await sandbox.fork(2, labels={"branch": "x"})
    try:
        assert all(fork.info.spec.labels == {"job": "17", "branch": "x"} for fork in forks)
        for number, fork in enumerate(forks):
            await fork.run_shell(f"echo {number} >> /root-file", check=True)
        texts = [(await each.run_shell("cat /root-file")).text for each in (sandbox, *forks)]
        assert texts == ["before\n", "before\n0\n", "before\n1\n"]
    finally:
        for fork in forks:
            await fork.stop()


async def test_a_snapshot_begins_new_sandboxes(client: DSecClient, sandbox: Sandbox) -> None:
    await sandbox.run_shell("mkdir -p /srv; echo kept > /srv/file", check=True)
    digest = await sandbox.snapshot("workspace/snap/one:v1")
    async with await client.run_container(args(environment="workspace/snap/one:v1")) as made:
        assert digest in made.info.digests
        assert (await made.run_shell("cat /srv/file")).text == "kept\n"


async def test_one_whose_first_process_dies_is_lost_and_says_so(
    edge: RealEdge, client: DSecClient
) -> None:
    sandbox = await client.run_container(args())
    call = asyncio.create_task(sandbox.run_shell("sleep 1000"))
    while not await sandbox.commands():
        await asyncio.sleep(0.05)
    pid = (edge.home / "run/sandboxes" / sandbox.id / "pid").read_text()
    os.kill(int(pid), signal.SIGKILL)
    with pytest.raises(errors.LostError):
        await call
    info = await sandbox.refresh()
    while info.state is not State.LOST:
        info = await sandbox.refresh()
    with pytest.raises(errors.LostError):
        await sandbox.run_shell("true")
    while left(edge):  # what is left of it is being removed
        await asyncio.sleep(0.05)
    assert (await sandbox.stop()).state is State.LOST


async def test_what_was_asked_and_refused_is_on_record(sandbox: Sandbox) -> None:
    await sandbox.run_shell("exit 3")
    with pytest.raises(errors.SandboxError, match="no-such-service"):
        await sandbox.set_network({"no-such-service": True})
    log = await sandbox.log()
    kinds = [event.kind for event in log]
    assert kinds[:2] == ["created", "state"]
    (asked,) = [event for event in log if event.kind == "exec"]
    (end,) = [event for event in log if event.kind == "exec-ended"]
    (refused,) = [event for event in log if event.kind == "refused"]
    assert "exit 3" in str(asked.detail["argv"])
    assert (end.detail["status"], end.detail["exec"]) == (3, asked.detail["exec"])
    assert refused.detail["asked"] == "network"


async def test_an_edge_tells_how_it_is(client: DSecClient, sandbox: Sandbox) -> None:
    health = await client.health()
    assert health.status == "serving"
    assert health.sandboxes[State.RUNNING] >= 1
    await sandbox.run_shell("true")
    figures = await client.metrics()
    assert 'dsec_edge_sandboxes{state="running"}' in figures
    assert 'dsec_edge_exec_ends_total{cause="exited"}' in figures


async def test_stopped_is_stopped_and_leaves_nothing(edge: RealEdge, client: DSecClient) -> None:
    made = await asyncio.gather(*(client.run_container(args()) for _ in range(4)))
    await asyncio.gather(*(each.stop() for each in made for _ in range(2)))
    assert left(edge) == []
