"""Stateless tasks, one at a time and in batches."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocket

from dsec_runtime.edge.calls import Call, Operation, as_problem
from dsec_runtime.edge.fncalls import Fncalls
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.service import Edge
from dsec_runtime.edge.sockets import SocketCall, SocketOperation
from dsec_runtime.errors import (
    InvalidRequestError,
    OverloadedError,
    SandboxError,
    UnsupportedError,
)
from dsec_runtime.messages import Event, FncallAnswer, FncallReply, FncallRequest
from dsec_runtime.spec import FncallTask

_decode: Final = msgspec.json.Decoder(FncallRequest).decode
_encode: Final = msgspec.json.encode


async def run(call: Call) -> object:
    """Run a task; it ends when the client leaves."""
    fncalls, task = _of(call.edge), call.body(FncallTask)
    working = asyncio.create_task(fncalls.run(task, call.principal))
    leaving = asyncio.create_task(call.gone())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def batch(call: SocketCall) -> None:
    """Run tasks as they come, and answer each when it ends; an empty message is the last one.

    So many are taken as may be in work; the others wait with the client.
    """
    fncalls, ending = _of(call.edge), asyncio.ensure_future(call.edge.ending.wait())
    working = asyncio.ensure_future(_serve(fncalls, call))
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise OverloadedError("the edge is about to end", detail={"retry_after_s": 5.0})
        working.result()
    finally:
        for each in (working, ending):
            each.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


async def _serve(fncalls: Fncalls, call: SocketCall) -> None:
    socket = call.socket
    slots = asyncio.Semaphore(2 * fncalls.pool.settings.total)  # one waits for each that runs

    async def answer(request: FncallRequest) -> None:
        try:
            reply = await _answered(fncalls, request, call.principal)
            await socket.send_bytes(_encode(reply))
        finally:
            slots.release()

    under_way: set[asyncio.Task[None]] = set()
    try:
        while message := await _next(slots, socket):
            task = asyncio.create_task(answer(_parsed(message)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _next(slots: asyncio.Semaphore, socket: WebSocket) -> bytes:
    await slots.acquire()
    return await socket.receive_bytes()


def _parsed(message: bytes) -> FncallRequest:
    try:
        return _decode(message)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"no task of a batch: {error}") from error


async def _answered(fncalls: Fncalls, request: FncallRequest, principal: Principal) -> FncallReply:
    try:
        return FncallReply(number=request.number, answer=await fncalls.run(request.task, principal))
    except SandboxError as error:
        if fncalls.draining:  # no fault of the task: it is begun anew at the next edge
            await asyncio.get_running_loop().create_future()
        return FncallReply(number=request.number, problem=as_problem(error))


def _of(edge: Edge) -> Fncalls:
    if edge.fncalls is None:
        raise UnsupportedError(
            "this edge has no fncall tier", hint="`dsec doctor` tells what a node can do"
        )
    return edge.fncalls


async def log(call: Call) -> object:
    """What is kept of the log of tasks."""
    return _of(call.edge).log(call.principal)


OPERATIONS = (
    Operation("POST", "/v1/fncall", "Run a stateless task", run, FncallTask, FncallAnswer),
    Operation("GET", "/v1/fncall/log", "The log of stateless tasks", log, None, list[Event]),
)
SOCKETS = (SocketOperation("/v1/fncalls", "Run a batch of stateless tasks", batch),)
