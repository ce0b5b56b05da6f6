"""A shell that stays: directory, variables, functions and jobs live from one command to the next.

Each command is evaluated by one `sh` (or another shell of the sandbox), with /dev/null as its
input, and marks the end of its output on both streams with a word that nothing else can know.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from types import TracebackType
from typing import Final

from dsec_runtime.errors import CommandTimeoutError, StateConflictError
from dsec_runtime.sdk.output import STDERR, STDOUT
from dsec_runtime.sdk.process import Process
from dsec_runtime.sdk.results import ExecResult, finished
from dsec_runtime.spec import EndCause, ExecEnd, ExecSpec

_STATUS_BYTES: Final = 16  # enough for a status and the end of its line


class Shell:
    """Made by `Sandbox.shell`; at the end of its `async with` it is killed with all it started."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._output = aiter(process)
        self._rest = {STDOUT: bytearray(), STDERR: bytearray()}
        self._one = asyncio.Lock()
        self.ended = False

    async def __aenter__(self) -> Shell:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        """Evaluate `command`, and wait for its end; commands come one after the other.

        One that runs longer than `timeout` seconds takes the shell with it: it cannot be told from
        it. Raises CommandTimeoutError, StateConflictError when the shell has ended.
        """
        async with self._one:
            if self.ended:
                raise StateConflictError("this shell has ended", hint="open another")
            try:
                async with asyncio.timeout(timeout):
                    return await self._run(command)
            except TimeoutError:
                await self.close()
                raise CommandTimeoutError(
                    f"the command ran longer than {timeout:g} s and was killed, with its shell",
                    detail={"timeout_s": timeout},
                ) from None

    async def close(self) -> None:
        """Kill the shell and all that it started."""
        self.ended = True
        if self._process.end is None:
            await self._process.kill()
        await self._process.detach()

    async def _run(self, command: str) -> ExecResult:
        mark = f"<{secrets.token_hex(16)}>"
        await self._process.write(
            # With `command`, a mistake in it does not end the shell.
            f"command eval {shlex.quote(command)} </dev/null\n"
            f"{{ printf '%s%d\\n' '{mark}' $?; printf '{mark}' >&2; }}\n"
        )
        while not self._is_marked(mark.encode()):
            piece = await anext(self._output, None)
            if piece is None:  # as after `exit`
                return self._last()
            self._rest[piece.stream] += piece.data
        return self._cut(mark.encode(), command)

    def _is_marked(self, mark: bytes) -> bool:
        out = self._rest[STDOUT]
        at = out.rfind(mark)
        return at >= 0 and out.endswith(b"\n", at) and mark in self._rest[STDERR]

    def _cut(self, mark: bytes, command: str) -> ExecResult:
        """What lies before the marks; what background jobs write later is the next one's."""
        out, _, after = bytes(self._rest[STDOUT]).partition(mark)
        status, _, more_out = after.partition(b"\n")
        err, _, more_err = bytes(self._rest[STDERR]).partition(mark)
        self._rest = {STDOUT: bytearray(more_out), STDERR: bytearray(more_err)}
        end = ExecEnd(
            cause=EndCause.EXITED,
            status=int(status[:_STATUS_BYTES]),
            stdout_bytes=len(out),
            stderr_bytes=len(err),
        )
        spec = ExecSpec(argv=(command,))
        return finished(self._process.id, spec, end, out, err)

    def _last(self) -> ExecResult:
        self.ended = True
        assert self._process.end is not None
        out, err = (bytes(self._rest[each]) for each in (STDOUT, STDERR))
        return finished(self._process.id, self._process.spec, self._process.end, out, err)
