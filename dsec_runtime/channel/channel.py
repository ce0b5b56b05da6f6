"""The host's end of a sandbox's agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dsec_runtime.channel import frames, replies
from dsec_runtime.channel.calls import Call
from dsec_runtime.channel.frames import Tag, Type, Value
from dsec_runtime.channel.link import Link
from dsec_runtime.channel.process import Process
from dsec_runtime.errors import (
    InvalidRequestError,
    LostError,
    RequestTimeoutError,
    SandboxError,
)
from dsec_runtime.spec import ExecEnd, ExecSpec

_WANTS_STDIN: Final = 1
_WANTS_PTY: Final = 2
_MERGES: Final = 4
_KILL_AT_LIMIT: Final = 8
_HOLD_S: Final = 60.0
_ANSWER_S: Final = 60.0


class Command(NamedTuple):
    """A command that an agent knows; `background` when only children of it still run."""

    id: str
    pid: int
    running: bool
    background: bool
    end: ExecEnd | None


class Channel:
    """One sandbox's agent. Belongs to one event loop.

    A broken connection is made again once, and commands are listened to from where they were; when
    that fails, or another agent answers, the sandbox is lost: LostError, now and ever after.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._link: Link | None = None
        self._recovery: asyncio.Task[Link] | None = None
        self._instance = b""
        self._processes: set[Process] = set()
        self._over: SandboxError | None = None
        self.features = 0

    @classmethod
    async def connect(cls, path: str | Path) -> Channel:
        """Connect to the socket on which the agent listens. Raises EdgeUnreachableError."""
        channel = cls(path)
        link = await Link.connect(path, channel._lost)
        channel._link, channel._instance, channel.features = link, link.instance, link.features
        return channel

    def close(self) -> None:
        """Leave; the sandbox and its commands go on."""
        self._give_up(LostError("the channel to the sandbox was closed"))
        if self._link is not None:
            self._link.close()

    # the connection

    def _lost(self, link: Link) -> None:
        if self._over is None and self._link is link:
            self._link = None
            self._recovery = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> Link:
        try:
            link = await Link.connect(self._path, self._lost)
            if link.instance != self._instance:
                link.close()
                raise LostError("another agent answers in its place")
        except SandboxError as error:
            lost = LostError(f"the sandbox is gone: {error.message}")
            self._give_up(lost)
            raise lost from error
        self._link, self._recovery = link, None
        for process in list(self._processes):
            process.begin(link)
        return link

    def _give_up(self, error: SandboxError) -> None:
        self._over = self._over or error
        for process in list(self._processes):
            process.fail(error)
        if self._recovery is not None:
            # Its error is this one, and who needs it reads it here.
            self._recovery.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def ready(self) -> Link:
        """The connection that is there or is just being made again. Raises LostError."""
        if self._over is not None:
            raise self._over
        if self._link is not None:
            return self._link
        assert self._recovery is not None
        return await asyncio.shield(self._recovery)

    # requests

    async def ask(
        self,
        kind: Type,
        fields: Sequence[tuple[int, Value]] = (),
        *,
        path: str | None = None,
        command: str | None = None,
        again: bool = True,
        timeout_s: float = _ANSWER_S,
    ) -> bytes:
        """One request and the payload of its answer.

        It is sent again after a broken connection when doing it twice does no harm (`again`).
        Raises what `replies.error_of` makes of an error, RequestTimeoutError and LostError.
        """
        request = frames.encode_fields(fields)
        for attempt in (1, 2):
            link = await self.ready()
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await Call(link, kind, request).answer()
            except TimeoutError as error:
                raise RequestTimeoutError(
                    f"the agent of the sandbox did not answer within {timeout_s} s"
                ) from error
            except ConnectionError as error:
                if again and attempt == 1:
                    continue
                raise RequestTimeoutError(
                    "the connection to the sandbox broke; the request may have been carried out"
                ) from error
            if answer.type == Type.ERROR:
                found = frames.fields_of(answer.payload)
                raise replies.error_of(found, path=path, command=command)
            return answer.payload
        raise AssertionError

    async def ping(self, timeout_s: float = 10.0) -> None:
        """Wait for the agent's answer. Raises RequestTimeoutError and LostError."""
        await self.ask(Type.PING, timeout_s=timeout_s)

    # commands

    async def exec(
        self, spec: ExecSpec, command: str, *, hold_s: float | None = _HOLD_S
    ) -> Process:
        """Start a command under an id of the caller's.

        Output that nobody listens to waits for `hold_s` (None: for ever), which stops the command
        when its ring is full; then it is overwritten. Raises CommandFailedError when it cannot be
        started, StateConflictError when the id is taken, OverloadedError.
        """
        request = _request(spec, command, hold_s)
        if len(request) > frames.MAX_PAYLOAD:
            raise InvalidRequestError(
                f"arguments and environment take more than {frames.MAX_PAYLOAD} bytes",
                hint="send what is large through stdin or a file",
            )
        return await self._begin(Process(command, (0, 0), request, self))

    async def attach(self, command: str, stdout_offset: int = 0, stderr_offset: int = 0) -> Process:
        """Listen to a command, also an ended one, from these offsets of its output.

        Whoever listened before is told so. What is no longer kept is skipped, which the offset of
        the first output shows. Raises UnknownSandboxError.
        """
        offsets = (stdout_offset, stderr_offset)
        return await self._begin(Process(command, offsets, None, self))

    async def _begin(self, process: Process) -> Process:
        link = await self.ready()
        self._processes.add(process)
        process.begin(link)
        try:
            await process.started()
        except asyncio.CancelledError:
            process.detach()
            raise
        return process

    def finished(self, process: Process) -> None:
        """What a process of this channel says when nothing more comes to it."""
        self._processes.discard(process)

    async def kill(self, command: str) -> None:
        """Kill all processes of a command, also those that it left in the background.

        Returns when they are gone. Raises UnknownSandboxError.
        """
        await self.ask(Type.KILL, [(Tag.ID, command)], command=command)

    async def processes(self) -> list[Command]:
        """All commands that the agent knows, oldest first."""
        found: list[frames.Fields] = []
        for tag, value in frames.each_field(await self.ask(Type.PROCESSES)):
            if tag == Tag.ID:
                found.append({})
            found[-1][tag] = value
        return [_command(fields) for fields in found]

    async def forget(self, command: str) -> None:
        """Free what is kept of an ended command; nothing when there is none."""
        await self.ask(Type.FORGET, [(Tag.ID, command)], command=command)


def _command(fields: frames.Fields) -> Command:
    running = frames.number(fields, Tag.RUNNING)
    return Command(
        id=frames.text(fields, Tag.ID),
        pid=frames.number(fields, Tag.PID),
        running=running == 1,
        background=running == 2,
        end=replies.end_of(fields) if Tag.CAUSE in fields else None,
    )


def _request(spec: ExecSpec, command: str, hold_s: float | None) -> bytes:
    flags = _WANTS_STDIN * spec.stdin | _MERGES * spec.merge
    flags |= _KILL_AT_LIMIT * (spec.on_limit == "kill")
    fields: list[tuple[int, Value]] = [(Tag.ID, command)]
    fields += [(Tag.ARG, word) for word in spec.argv]
    fields += [(Tag.ENV, f"{name}={value}") for name, value in spec.env.items()]
    if spec.cwd is not None:
        fields.append((Tag.CWD, spec.cwd))
    if spec.user is not None:
        fields.append((Tag.USER, spec.user))
    if spec.pty is not None:
        flags |= _WANTS_PTY
        fields += [(Tag.ROWS, spec.pty[0]), (Tag.COLUMNS, spec.pty[1])]
    if spec.timeout_s is not None:
        fields.append((Tag.TIMEOUT_MS, max(1, round(spec.timeout_s * 1000))))
    hold_ms = 0xFFFFFFFF if hold_s is None else min(round(hold_s * 1000), 0xFFFFFFFE)
    fields += [
        (Tag.LIMIT, spec.output_limit_bytes or 0),
        (Tag.KEEP, spec.keep_bytes),
        (Tag.HOLD_MS, hold_ms),
        (Tag.FLAGS, flags),
    ]
    return frames.encode_fields(fields)
