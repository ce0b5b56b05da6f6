"""Commands of a sandbox: run to the end, started, attached to, or one after another in a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.messages import ExecRequest
from dsec_runtime.sdk.output import Position
from dsec_runtime.sdk.process import Process
from dsec_runtime.sdk.results import ExecResult
from dsec_runtime.sdk.running import INLINE_BYTES, OnBytes, Run, new_exec_id
from dsec_runtime.sdk.shell import Shell
from dsec_runtime.sdk.transport import Transport
from dsec_runtime.spec import ExecInfo, ExecSpec, SandboxInfo

_SHELL = "/bin/sh"


class Commands:
    """What a `Sandbox` can do with programs."""

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        self.info = info
        self._transport = transport
        self._path = f"/v1/sandboxes/{info.id}"

    async def run_shell(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        on_stdout: OnBytes | None = None,
        on_stderr: OnBytes | None = None,
        check: bool = False,
    ) -> ExecResult:
        """Run a command line by `/bin/sh -c`, to its end; as `exec`."""
        return await self.exec(
            [_SHELL, "-c", command],
            env=env,
            cwd=cwd,
            user=user,
            stdin=stdin,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            check=check,
        )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
        on_limit: str = "kill",
        merge: bool = False,
        on_stdout: OnBytes | None = None,
        on_stderr: OnBytes | None = None,
        check: bool = False,
    ) -> ExecResult:
        """Run a program to its end.

        After `timeout` seconds all that it started is killed, as after `output_limit` bytes unless
        `on_limit` is "drop". With a callback a stream is not kept. How it ended is told by the
        result; with `check` a bad end is raised, as `ExecResult.check` does. Infrastructure's
        faults are always raised.
        """
        spec = _spec(
            argv,
            env=env,
            cwd=cwd,
            user=user,
            timeout_s=timeout,
            output_limit_bytes=output_limit,
            on_limit=on_limit,
            merge=merge,
        )
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if data is not None and len(data) > INLINE_BYTES:
            raise InvalidRequestError(
                f"more than {INLINE_BYTES} bytes of input", hint="use start() and write()"
            )
        run = Run(
            self._transport,
            self._path,
            spec,
            input_=data,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )
        result = await run.to_end()
        return result.check() if check else result

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
        on_limit: str = "kill",
        keep: int | None = None,
        merge: bool = False,
    ) -> Process:
        """Start a program and return while it runs.

        `pty` is the size of a terminal (rows, columns). The last `keep` bytes of each stream are
        there for whoever attaches later.
        """
        spec = _spec(
            argv,
            env=env,
            cwd=cwd,
            user=user,
            stdin=stdin or pty is not None,
            pty=pty,
            timeout_s=timeout,
            output_limit_bytes=output_limit,
            on_limit=on_limit,
            keep_bytes=keep,
            merge=merge,
        )
        body = ExecRequest(spec=spec, id=new_exec_id())
        info = await self._transport.call("POST", f"{self._path}/execs", ExecInfo, body, again=True)
        return self._process(info, Position())

    async def attach(
        self, command: str, *, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> Process:
        """Listen to a command of this sandbox, from an offset of its output. Also an ended one."""
        info = await self._transport.call("GET", f"{self._path}/execs/{command}", ExecInfo)
        return self._process(info, Position(stdout_offset, stderr_offset))

    async def commands(self) -> list[ExecInfo]:
        """The commands that are known, ended ones too as long as they are kept."""
        return await self._transport.call("GET", f"{self._path}/execs", list[ExecInfo])

    async def shell(
        self,
        program: str = _SHELL,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
    ) -> Shell:
        """A shell that keeps its directory and variables from one command to the next."""
        process = await self.start([program], env=env, cwd=cwd, user=user, stdin=True)
        return Shell(process)

    def _process(self, info: ExecInfo, position: Position) -> Process:
        return Process(self._transport, self._path, info, position)


def _spec(argv: Sequence[str], *, env: Mapping[str, str] | None, **rest: object) -> ExecSpec:
    """The values that were given; the others are left to the defaults. InvalidRequestError."""
    if isinstance(argv, str):
        raise InvalidRequestError("argv is a list of words", hint="use run_shell for a line")
    given = {name: value for name, value in rest.items() if value is not None}
    try:
        return msgspec.convert({"argv": list(argv), "env": dict(env or {}), **given}, ExecSpec)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(str(error)) from error
