"""Stateless tasks, by the client: their results, one at a time and in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import Final

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedError

from dsec_runtime.errors import (
    CommandFailedError,
    EdgeUnreachableError,
    InvalidRequestError,
    OverloadedError,
    SandboxError,
)
from dsec_runtime.messages import FncallAnswer, FncallReply, FncallRequest
from dsec_runtime.sdk.results import ExecResult, finished, not_started
from dsec_runtime.sdk.transport import DEADLINE_S, Transport, problem
from dsec_runtime.spec import (
    MOST_OUTPUT_BYTES,
    EndCause,
    ExecEnd,
    ExecSpec,
    FncallTask,
    Problem,
)

Tasks = Iterable[FncallTask] | AsyncIterable[FncallTask]

_LOST: Final = ExecEnd(cause=EndCause.LOST, status=125)  # as `docker run` says what it cannot do
_reply: Final = msgspec.json.Decoder(FncallReply).decode
_problem: Final = msgspec.json.Decoder(Problem).decode
_LONGEST_PAUSE_S: Final = 1.0
_LONGEST_REPLY_BYTES: Final = 5 * MOST_OUTPUT_BYTES  # two streams and results, in base64
_LONGEST_REQUEST_BYTES: Final = 16 << 20


class FncallResult(ExecResult, frozen=True):
    """A task that has ended: `number` is its place in the batch, from 0.

    `files` are its results, and `missing` says why one is not among them. An `error` that is an
    AgentError is the task's own; any other says nothing of it: `end` is LOST then.
    """

    number: int = 0
    files: dict[str, bytes] = msgspec.field(default_factory=dict)
    missing: dict[str, str] = msgspec.field(default_factory=dict)


async def run(transport: Transport, task: FncallTask) -> FncallResult:
    """Run one task. Raises SandboxError that is not the task's own. Asked again when it is lost."""
    try:
        most_s = task.timeout_s + DEADLINE_S
        answer = await transport.call(
            "POST", "/v1/fncall", FncallAnswer, task, again=True, timeout=most_s
        )
    except CommandFailedError as error:
        return _failed(0, error)
    return _told(0, task, answer)


async def run_many(transport: Transport, tasks: Tasks) -> AsyncIterator[FncallResult]:
    """Results as they come, in no order. Raises SandboxError when the edge is gone or refuses all.

    A batch that is cut off goes on over another connection; what was under way is run again.
    """
    batch = _Batch(transport, tasks)
    while not batch.is_done:
        socket = await transport.again(
            lambda: transport.open_socket("/v1/fncalls", most_bytes=_LONGEST_REPLY_BYTES)
        )
        async with contextlib.aclosing(batch.over(socket)) as results:
            async for result in results:
                yield result


class _Batch:
    def __init__(self, transport: Transport, tasks: Tasks) -> None:
        self._transport = transport
        self._tasks = _numbered(tasks)
        self._pending: dict[int, FncallTask] = {}
        self._futile = 0  # connections in a row that gave nothing
        self._failure: Exception | None = None  # of whoever makes the tasks
        self.is_done = False

    async def over(self, socket: ClientConnection) -> AsyncGenerator[FncallResult, None]:
        """What comes over one connection, until that breaks or all is done."""
        sending = asyncio.create_task(self._send(socket))
        try:
            async for message in socket:
                yield self._take(message)
                self._futile = 0
            self.is_done = sending.done() and not self._pending
        except (ConnectionClosedError, OverloadedError) as error:  # of an edge that is ending
            await self._pause(error)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await socket.close()
        if self._failure is not None:
            raise self._failure

    async def _send(self, socket: ClientConnection) -> None:
        try:
            for number, task in list(self._pending.items()):
                await _put(socket, number, task)
            async for number, task in self._tasks:
                self._pending[number] = task
                await _put(socket, number, task)
            await socket.send(b"")
        except ConnectionClosed:
            return  # the reader sees it too
        except Exception as error:
            self._failure = error
            await socket.close()

    def _take(self, message: str | bytes) -> FncallResult:
        if isinstance(message, str):
            raise problem(_problem(message))
        reply = _reply(message)
        task = self._pending.pop(reply.number)
        if reply.answer is None:
            assert reply.problem is not None
            return _failed(reply.number, problem(reply.problem))
        return _told(reply.number, task, reply.answer)

    async def _pause(self, error: Exception) -> None:
        self._futile += 1
        if self._futile * _LONGEST_PAUSE_S > self._transport.patience_s:
            raise EdgeUnreachableError(f"the batch was cut off: {error}") from error
        await asyncio.sleep(_LONGEST_PAUSE_S)


async def _put(socket: ClientConnection, number: int, task: FncallTask) -> None:
    request = FncallRequest(number=number, task=task)
    message = msgspec.json.encode(request)
    if len(message) > _LONGEST_REQUEST_BYTES:
        raise InvalidRequestError(
            f"task {number} has more than {_LONGEST_REQUEST_BYTES} bytes",
            hint="what many tasks need belongs into the environment",
        )
    await socket.send(message)


async def _numbered(tasks: Tasks) -> AsyncIterator[tuple[int, FncallTask]]:
    number = 0
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield number, task
            number += 1
        return
    for task in tasks:
        yield number, task
        number += 1


def _told(number: int, task: FncallTask, answer: FncallAnswer) -> FncallResult:
    spec = ExecSpec(
        argv=task.argv[:1] if task.argv and not task.code else (task.kind,),
        timeout_s=task.timeout_s,
        output_limit_bytes=task.output_limit_bytes,
    )
    result = finished(str(number), spec, answer.end, answer.stdout, answer.stderr)
    return _with(result, number, answer)


def _failed(number: int, error: SandboxError) -> FncallResult:
    if isinstance(error, CommandFailedError):
        return _with(not_started(str(number), error), number)
    return _with(ExecResult(str(number), _LOST, b"", b"", error), number)


def _with(result: ExecResult, number: int, answer: FncallAnswer | None = None) -> FncallResult:
    files, missing = (answer.files, answer.missing) if answer else ({}, {})
    return FncallResult(
        result.id, result.end, result.stdout, result.stderr, result.error, number, files, missing
    )
