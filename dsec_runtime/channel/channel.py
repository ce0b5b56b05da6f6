"""The host's end of a sandbox's agent: commands, files, ports, and the machine's clock."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import Final, NamedTuple

from dsec_runtime.channel import frames, replies
from dsec_runtime.channel.files import FileAccess
from dsec_runtime.channel.frames import Tag, Type, Value
from dsec_runtime.channel.process import Process
from dsec_runtime.errors import CommandFailedError, InvalidRequestError, UnsupportedError
from dsec_runtime.spec import ExecEnd, ExecSpec

_WANTS_STDIN: Final = 1
_WANTS_PTY: Final = 2
_MERGES: Final = 4
_KILL_AT_LIMIT: Final = 8
_HOLD_S: Final = 60.0


class Command(NamedTuple):
    """A command that an agent knows; `background` when only children of it still run."""

    id: str
    pid: int
    running: bool
    background: bool
    end: ExecEnd | None


class Channel(FileAccess):
    """One sandbox's agent, by `Channel.connect`. Belongs to one event loop.

    A broken connection is made again once, and commands are listened to from where they were; when
    that fails, or another agent answers, the sandbox is lost: LostError, now and ever after.
    """

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
        return await self._begin(Process(command, (0, 0), request, self, spec.argv[0]))

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

    # the machine

    async def step_clock(self, now_ns: int | None = None) -> None:
        """Set its clock, by default to ours. Raises UnsupportedError where it is the node's own."""
        fields: list[tuple[int, Value]] = [(Tag.TIME_NS, now_ns or time.time_ns())]
        await self._ask_machine(Type.CLOCK, fields, "clock")

    async def reseed(self, seed: bytes) -> None:
        """Make its random numbers differ from those of its clones; `seed` has 1 to 512 bytes.

        Raises UnsupportedError where the generator is the node's own.
        """
        await self._ask_machine(Type.RESEED, [(Tag.BYTES, seed)], "generator of random numbers")

    async def _ask_machine(self, kind: Type, fields: list[tuple[int, Value]], what: str) -> None:
        try:
            await self.ask(kind, fields)
        except CommandFailedError as error:
            if error.detail.get("errno") not in (errno.EPERM, errno.ENODEV):
                raise
            raise UnsupportedError(f"the {what} of this tier is the node's own") from error


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
