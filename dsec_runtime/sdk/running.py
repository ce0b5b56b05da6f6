"""Running a command to its end in one request, with output as it comes."""

from __future__ import annotations

import contextlib
import inspect
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from dsec_runtime import alive, wire
from dsec_runtime.errors import CommandFailedError, EdgeUnreachableError
from dsec_runtime.messages import FRAMES, JSON, ExecRequest
from dsec_runtime.sdk.output import STDERR, STDOUT, Output, Position
from dsec_runtime.sdk.results import ExecResult, finished, not_started
from dsec_runtime.sdk.transport import Transport
from dsec_runtime.spec import ExecEnd, ExecSpec

OnBytes = Callable[[bytes], Awaitable[None] | None]
INLINE_BYTES: Final = 4 << 20  # of input, which then travels with the request
_HEADERS: Final = {"Content-Type": JSON, "Accept": FRAMES}


class Run:
    """One command. `path` is the sandbox's; with callbacks output is not kept."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        spec: ExecSpec,
        *,
        input_: bytes | None = None,
        on_stdout: OnBytes | None = None,
        on_stderr: OnBytes | None = None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._request = ExecRequest(spec=spec, id=new_exec_id(), input=input_)
        self._callbacks = {STDOUT: on_stdout, STDERR: on_stderr}
        self._kept: dict[str, list[bytes]] = {STDOUT: [], STDERR: []}
        self._position = Position()

    async def to_end(self) -> ExecResult:
        """Run it. When the caller is cancelled it is killed. Raises InfrastructureErrors."""
        name = self._request.id
        assert name is not None
        try:
            end = await self._transport.again(self._once)
        except CommandFailedError as error:
            return not_started(name, error)
        except BaseException:
            # Nobody waits for it any more; it must not go on unseen.
            with contextlib.suppress(Exception):
                await self._transport.call(
                    "DELETE", f"{self._path}/execs/{name}", type(None), timeout=5.0
                )
            raise
        out, err = (b"".join(self._kept[each]) for each in (STDOUT, STDERR))
        return finished(name, self._request.spec, end, out, err)

    async def _once(self) -> ExecEnd:
        """Ask once; the same request again finds the same command, and goes on in its output."""
        parser = wire.Parser()
        async with self._transport.stream(
            "POST",
            f"{self._path}/exec",
            params=self._position.query if any(self._position.query.values()) else None,
            content=msgspec.json.encode(self._request),
            headers=_HEADERS,
            silence_s=alive.SILENCE_S,
        ) as response:
            async for data in response.parts():
                for frame in parser.feed(data):
                    piece = self._position.take(frame)
                    if piece is not None:
                        await self._deliver(piece)
        if self._position.end is None:
            raise EdgeUnreachableError("the answer ended before the command did")
        return self._position.end

    async def _deliver(self, piece: Output) -> None:
        callback = self._callbacks[piece.stream]
        if callback is None:
            self._kept[piece.stream].append(piece.data)
            return
        waiting = callback(piece.data)
        if inspect.isawaitable(waiting):
            await waiting


def new_exec_id() -> str:
    """An id that no other command has."""
    return "c" + secrets.token_hex(8)
