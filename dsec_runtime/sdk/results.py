"""What a command left, and whose fault its end was."""

from __future__ import annotations

import errno

import msgspec

from dsec_runtime.errors import (
    AgentError,
    CommandFailedError,
    CommandTimeoutError,
    LostError,
    OutOfMemoryError,
    OutputLimitError,
    SandboxError,
)
from dsec_runtime.spec import EndCause, ExecEnd, ExecSpec

_NOT_FOUND, _NOT_RUN = 127, 126  # as a shell says them


class ExecResult(msgspec.Struct, frozen=True):
    """A command that has ended, and what was kept of its output.

    Bytes are missing at the front of a stream when the connection broke for so long that they were
    written over: then `end` counts more than is here.
    """

    id: str
    end: ExecEnd
    stdout: bytes
    stderr: bytes
    error: SandboxError | None = None

    @property
    def exit_code(self) -> int:
        """Its exit status; 128 and the number of the signal that ended it."""
        return self.end.status

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with status 0."""
        return self.error is None

    @property
    def text(self) -> str:
        """Standard output as text; what is no UTF-8 is replaced."""
        return self.stdout.decode(errors="replace")

    def check(self) -> ExecResult:
        """Itself, if it is `ok`. Raises the AgentError (or LostError) that says why not."""
        if self.error is not None:
            raise self.error
        return self


def finished(name: str, spec: ExecSpec, end: ExecEnd, stdout: bytes, stderr: bytes) -> ExecResult:
    """The result of a command that has run."""
    return ExecResult(name, end, stdout, stderr, _error(spec, end, stderr))


def not_started(name: str, error: CommandFailedError) -> ExecResult:
    """The result of a command whose program could not be run, as a shell tells it."""
    missing = error.detail.get("errno") == errno.ENOENT
    end = ExecEnd(cause=EndCause.EXITED, status=_NOT_FOUND if missing else _NOT_RUN)
    return ExecResult(name, end, b"", error.message.encode() + b"\n", error)


def _error(spec: ExecSpec, end: ExecEnd, stderr: bytes) -> AgentError | LostError | None:
    program = spec.argv[0]
    match end.cause:
        case EndCause.TIMEOUT:
            return CommandTimeoutError(
                f"{program} ran longer than it may and was killed",
                detail={"timeout_s": spec.timeout_s, "wall_s": end.wall_s},
            )
        case EndCause.OUTPUT_LIMIT:
            return OutputLimitError(
                f"{program} wrote more than it may and was killed",
                detail={"limit_bytes": spec.output_limit_bytes},
            )
        case EndCause.LOST:
            return LostError(f"{program} is gone with its sandbox")
    if end.status == 0:
        return None
    if end.cause is EndCause.OUT_OF_MEMORY or end.oom_limit_bytes is not None:
        victim, limit = end.oom_process or program, end.oom_limit_bytes
        return OutOfMemoryError(
            f"{victim} was killed for want of memory: the sandbox has {limit} bytes",
            detail={"process": victim, "limit_bytes": limit, "status": end.status},
        )
    said = stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
    how = f"was ended by signal {end.signal}" if end.signal else f"exited with {end.status}"
    return CommandFailedError(
        f"{program} {how}" + (f": {said}" if said else ""),
        detail={"status": end.status, "signal": end.signal, "cause": end.cause.value},
    )
