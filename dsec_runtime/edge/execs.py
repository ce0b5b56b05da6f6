"""Commands in sandboxes: what they get by default, their ends, and who is to blame for these."""

from __future__ import annotations

import secrets
import shlex
import signal
from typing import TYPE_CHECKING, Final

import msgspec

from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.life import Life
from dsec_runtime.edge.outbox import Outbox
from dsec_runtime.edge.sandboxes import Sandboxes
from dsec_runtime.errors import SandboxError, StateConflictError
from dsec_runtime.messages import ExecRequest
from dsec_runtime.spec import EndCause, ExecEnd, ExecInfo, ExecSpec

if TYPE_CHECKING:
    from dsec_runtime.channel import Channel, Process
    from dsec_runtime.channel.channel import Command

_KILLED: Final = (int(signal.SIGKILL), 128 + signal.SIGKILL)


class Execs:
    """Starts commands through the channels of sandboxes."""

    def __init__(self, sandboxes: Sandboxes, life: Life) -> None:
        self._sandboxes = sandboxes
        self._life = life

    async def start(
        self,
        entry: Entry,
        channel: Channel,
        request: ExecRequest,
        offsets: tuple[int, int] = (0, 0),
    ) -> Process:
        """Start it, or find the one that the same request has started before.

        Of that one, output is wanted from `offsets`.
        """
        spec = _complete(entry, request)
        name = request.id or "x" + secrets.token_hex(8)
        try:
            process = await channel.exec(spec, name)
        except StateConflictError:
            if request.id is None:
                raise
            process = await channel.attach(name, *offsets)
            self._give(process, request.input, process.stdin_offset)
            return process
        entry.remember(ExecInfo(id=name, argv=spec.argv, started_s=self._sandboxes.clock()))
        self._sandboxes.metrics.execs.inc()
        detail = {"exec": name, "argv": shlex.join(spec.argv), "user": spec.user}
        self._sandboxes.record(entry, "exec", None, detail)
        self._give(process, request.input)
        return process

    def _give(self, process: Process, data: bytes | None, had: int = 0) -> None:
        """Give it its input, without what it has had already."""
        if data is not None:
            self._life.driving.spawn(_feed(process, data[had:]))

    def outbox(self, entry: Entry, process: Process) -> Outbox:
        """What it writes, for a client."""
        return Outbox(
            process,
            lambda ended: self.end(entry, ended),
            lambda error: self._life.explain(entry, error),
        )

    async def end(self, entry: Entry, process: Process) -> ExecEnd:
        """How it ended, once it has. A kill by the kernel for want of memory is told as such.

        Of what it started, too: a compiler driver or `make` survives that, and ends with a status.
        """
        end = await process.wait()
        if end.status and end.cause in (EndCause.EXITED, EndCause.SIGNALLED):
            end = await self._blame(entry, end)
        self._sandboxes.metrics.exec_ends.labels(end.cause.value).inc()
        detail = {"exec": process.id, "cause": end.cause.value, "status": end.status}
        self._sandboxes.record(entry, "exec-ended", None, detail)
        return end

    async def _blame(self, entry: Entry, end: ExecEnd) -> ExecEnd:
        """With the victim, if the kernel has killed in this sandbox since it was last asked."""
        running = entry.row.running
        if running is None:
            return end
        driver = self._life.driving.tier(entry.row.spec.tier)
        call = self._life.driving.call
        try:
            kills = (await call(driver.usage, running)).oom_kills
            if kills <= entry.oom_kills:
                return end
            entry.oom_kills = kills
            victim = await call(driver.last_oom, running)
        except SandboxError:
            return end
        process = victim.process if victim else None
        limit = victim.limit_bytes if victim else entry.row.spec.limits.memory_bytes
        detail = {"process": process, "limit_bytes": limit}
        self._sandboxes.record(entry, "out-of-memory", None, detail)
        return with_victim(end, process, limit)


def with_victim(end: ExecEnd, process: str | None, limit_bytes: int | None) -> ExecEnd:
    """The end of a command while which the kernel killed this process for want of memory."""
    was_it = end.signal in _KILLED or end.status in _KILLED
    return msgspec.structs.replace(
        end,
        cause=EndCause.OUT_OF_MEMORY if was_it else end.cause,
        oom_process=process,
        oom_limit_bytes=limit_bytes,
    )


def info(entry: Entry, command: Command) -> ExecInfo:
    """What is known of a command, by the agent and by us."""
    known = entry.commands.get(command.id) or ExecInfo(id=command.id)
    return msgspec.structs.replace(
        known, running=command.running, background=command.background, end=command.end
    )


def _complete(entry: Entry, request: ExecRequest) -> ExecSpec:
    """The command with what the sandbox gives to all."""
    spec, running = request.spec, entry.row.running
    assert running is not None
    return msgspec.structs.replace(
        spec,
        env={**running.env, **spec.env},
        cwd=spec.cwd or running.workdir,
        user=spec.user or running.user,
        stdin=spec.stdin or request.input is not None,
    )


async def _feed(process: Process, data: bytes) -> None:
    """Give a command all of its input; one that does not read it to the end is not at fault."""
    try:
        await process.write_stdin(data)
        process.close_stdin()
    except SandboxError:
        return
