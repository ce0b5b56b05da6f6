"""Commands in sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from dsec_runtime import wire
from dsec_runtime.edge.calls import Call, Operation, Query
from dsec_runtime.edge.execs import info
from dsec_runtime.edge.outbox import Outbox
from dsec_runtime.edge.sockets import SocketCall, SocketOperation
from dsec_runtime.errors import InvalidRequestError, UnknownSandboxError
from dsec_runtime.messages import FRAMES, JSON, ExecAnswer, ExecRequest
from dsec_runtime.spec import ExecInfo, State

if TYPE_CHECKING:
    from dsec_runtime.channel import Process

_KEPT_BYTES: Final = 1 << 20


async def run(call: Call) -> object:
    """Run a command to its end: frames as they come, or the end of all as JSON."""
    entry, edge, request = call.entry(), call.edge, call.body(ExecRequest)
    async with edge.life.using(entry) as channel:
        offsets = (call.whole("stdout"), call.whole("stderr"))
        process = await edge.execs.start(entry, channel, request, offsets)
        if FRAMES not in call.request.headers.get("accept", ""):
            return await _answer(call, process)
        await _stream(call, process)
        return None


async def _answer(call: Call, process: Process) -> ExecAnswer:
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    offsets = {"stdout": 0, "stderr": 0}
    async for stream, offset, data in process:
        kept[stream] += data
        surplus = len(kept[stream]) - _KEPT_BYTES
        offsets[stream] = offset + len(data) - len(kept[stream])
        if surplus > 0:
            del kept[stream][:surplus]
            offsets[stream] += surplus
    assert call.seen is not None
    end = await call.edge.execs.end(call.seen, process)
    return ExecAnswer(
        id=process.id,
        end=end,
        stdout=bytes(kept["stdout"]),
        stderr=bytes(kept["stderr"]),
        stdout_offset=offsets["stdout"],
        stderr_offset=offsets["stderr"],
    )


async def _stream(call: Call, process: Process) -> None:
    """Send frames; one that ends at once is one answer with a length."""
    headers = [(b"content-type", FRAMES.encode()), (b"dsec-exec", process.id.encode())]
    entry = call.seen
    assert entry is not None
    leaving: asyncio.Task[None] | None = None
    outbox = call.edge.execs.outbox(entry, process)
    async with contextlib.aclosing(outbox.pieces()) as pieces:
        async for piece, last in pieces:
            if leaving is None:
                if last:
                    headers.append((b"content-length", str(len(piece)).encode()))
                await call.send({"type": "http.response.start", "status": 200, "headers": headers})
                leaving = asyncio.create_task(call.gone())
            if leaving.done():
                process.detach()  # the command goes on; it has a name
                break
            await call.send({"type": "http.response.body", "body": piece, "more_body": not last})
    if leaving is not None:
        leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leaving


async def start(call: Call) -> object:
    """Start a command and leave it to itself."""
    entry, request = call.entry(), call.body(ExecRequest)
    async with call.edge.life.using(entry) as channel:
        process = await call.edge.execs.start(entry, channel, request)
        process.detach()
        return entry.commands.get(process.id) or ExecInfo(id=process.id)


async def list_(call: Call) -> list[ExecInfo]:
    """The commands that are known in the sandbox, ended ones too as long as they are kept."""
    entry = call.entry()
    async with call.edge.life.using(entry, short=True) as channel:
        return [info(entry, command) for command in await channel.processes()]


async def get(call: Call) -> object:
    """One command."""
    name = call.request.path_params["exec"]
    for command in await list_(call):
        if command.id == name:
            return command
    raise UnknownSandboxError(f"the sandbox has no command {name}")


async def kill(call: Call) -> object:
    """Kill a command and all that it started."""
    async with call.edge.life.using(call.entry(), short=True) as channel:
        await channel.kill(call.request.path_params["exec"])
    return None


async def stream(call: SocketCall) -> None:
    """Follow a command from an offset, and speak to it."""
    name = call.socket.path_params["exec"]
    entry, edge = call.entry, call.edge
    async with edge.life.using(entry) as channel:
        process = await channel.attach(name, call.offset("stdout"), call.offset("stderr"))
        outbox = edge.execs.outbox(entry, process)
        tasks = [
            asyncio.create_task(_outgoing(call, outbox)),
            asyncio.create_task(_incoming(call, process)),
            asyncio.create_task(edge.ending.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            process.detach()


async def _outgoing(call: SocketCall, outbox: Outbox) -> None:
    async with contextlib.aclosing(outbox.pieces()) as pieces:
        async for piece, _ in pieces:
            await call.socket.send_bytes(piece)


async def _incoming(call: SocketCall, process: Process) -> None:
    """Input until the client leaves, which raises WebSocketDisconnect."""
    while True:
        message = await call.socket.receive_bytes()
        await _resume(call)
        try:
            frame = wire.parse(message)
            if frame.kind == wire.Kind.STDIN:
                await process.write_stdin(bytes(frame.payload))
            elif frame.kind == wire.Kind.CLOSE_STDIN:
                process.close_stdin()
            elif frame.kind == wire.Kind.RESIZE:
                process.resize(*wire.parse_size(frame.payload))
            elif frame.kind == wire.Kind.SIGNAL:
                process.signal(frame.offset)
        except wire.MalformedError as error:
            raise InvalidRequestError(str(error)) from error


async def _resume(call: SocketCall) -> None:
    """As any request does with a paused sandbox."""
    while call.entry.state in (State.PAUSING, State.PAUSED, State.RESUMING):
        await call.edge.life.wake(call.entry)


_AT = "/v1/sandboxes/{id}"
OPERATIONS = (
    Operation(
        "POST", _AT + "/exec", "Run a command to its end", run, ExecRequest, ExecAnswer, sends=JSON
    ),
    Operation("POST", _AT + "/execs", "Start a command", start, ExecRequest, ExecInfo, 201),
    Operation("GET", _AT + "/execs", "List commands", list_, None, list[ExecInfo]),
    Operation("GET", _AT + "/execs/{exec}", "Tell of a command", get, None, ExecInfo),
    Operation(
        "DELETE",
        _AT + "/execs/{exec}",
        "Kill a command and its tree",
        kill,
        status=204,
        audit="kill",
    ),
)
SOCKETS = (
    SocketOperation(
        _AT + "/execs/{exec}/stream",
        "Follow a command and speak to it",
        stream,
        query=(
            Query("stdout", "integer", "The offset from which standard output is wanted"),
            Query("stderr", "integer", "The same of standard error"),
        ),
    ),
)
