"""What an agent answers, as values and errors of the runtime."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Fields, Tag
from dsec_runtime.errors import (
    CommandFailedError,
    DiskQuotaError,
    FileError,
    OverloadedError,
    SandboxError,
    StateConflictError,
    UnknownSandboxError,
    UnsupportedError,
)
from dsec_runtime.spec import EndCause, ExecEnd

_CAUSES: Final = {
    1: EndCause.EXITED,
    2: EndCause.SIGNALLED,
    3: EndCause.TIMEOUT,
    4: EndCause.OUTPUT_LIMIT,
    5: EndCause.KILLED,
}
_STAGES: Final = {
    "exec": "the program cannot be executed",
    "cwd": "the working directory cannot be entered",
    "user": "the user cannot be taken",
    "stdio": "its terminal cannot be taken",
    "privileges": "its privileges cannot be limited",
    "fork": "no process can be made",
}


def end_of(fields: Fields) -> ExecEnd:
    """How a command ended."""
    return ExecEnd(
        cause=_CAUSES[frames.number(fields, Tag.CAUSE)],
        status=frames.number(fields, Tag.STATUS),
        signal=frames.number(fields, Tag.SIGNAL) or None,
        stdout_bytes=frames.number(fields, Tag.STDOUT_OFFSET),
        stderr_bytes=frames.number(fields, Tag.STDERR_OFFSET),
        wall_s=frames.number(fields, Tag.WALL_US) / 1e6,
        cpu_s=frames.number(fields, Tag.CPU_US) / 1e6,
        peak_bytes=frames.number(fields, Tag.PEAK),
    )


def error_of(
    fields: Fields,
    *,
    path: str | None = None,
    command: str | None = None,
    program: str = "the command",
) -> SandboxError:
    """The error that an answer tells, of a file operation (`path`) or a command."""
    number = frames.number(fields, Tag.ERRNO)
    stage = frames.text(fields, Tag.STAGE)
    reason = os.strerror(number)
    if known := _BY_STAGE.get((stage, number)):
        return known(command or path or "", reason)
    if path is not None and number in (errno.ENOSPC, errno.EDQUOT):
        return DiskQuotaError(f"{path}: the disk of the sandbox is full", detail={"path": path})
    if path is not None:
        return FileError(f"{path}: {reason}", detail={"path": path, "errno": number})
    said = _STAGES.get(stage, stage)
    return CommandFailedError(
        f"{program} was not started: {said}: {reason}", detail={"errno": number, "stage": stage}
    )


def _overloaded(what: str, reason: str) -> SandboxError:
    return OverloadedError(
        "the sandbox has as many commands or transfers as it can",
        hint="end some of them",
        detail={"retry_after_s": 1.0},
    )


_BY_STAGE: Final[dict[tuple[str, int], Callable[[str, str], SandboxError]]] = {
    ("start", errno.EAGAIN): _overloaded,
    ("worker", errno.EAGAIN): _overloaded,
    ("start", errno.EEXIST): lambda what, _: StateConflictError(
        f"the sandbox has a command {what} already"
    ),
    ("attach", errno.ESRCH): lambda what, _: UnknownSandboxError(
        f"the sandbox has no command {what}", hint="ended commands are kept with a bound"
    ),
    ("forget", errno.EBUSY): lambda what, _: StateConflictError(f"command {what} still runs"),
    ("worker", errno.ENOSYS): lambda what, _: UnsupportedError(
        "the agent of the sandbox cannot do this", hint="it is of another version"
    ),
}
