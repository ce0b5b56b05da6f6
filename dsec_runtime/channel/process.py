"""A command in a sandbox, as its caller holds it."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self

from dsec_runtime.channel import frames, replies
from dsec_runtime.channel.flow import Outflow
from dsec_runtime.channel.frames import Frame, Tag, Type, Value
from dsec_runtime.errors import SandboxError, StateConflictError, UnknownSandboxError
from dsec_runtime.spec import ExecEnd

if TYPE_CHECKING:
    from dsec_runtime.channel.link import Link

Stream = Literal["stdout", "stderr"]

_STREAMS: Final[tuple[Stream, Stream]] = ("stdout", "stderr")
_ACK_BYTES: Final = 16 << 10  # a quarter of the smallest ring


class Output(NamedTuple):
    """A piece of output; an `offset` beyond the end of the piece before it tells of a gap."""

    stream: Stream
    offset: int
    data: bytes


class Owner(Protocol):
    """The channel, as its processes see it."""

    def finished(self, process: Process) -> None:
        """Nothing more comes to it."""

    async def kill(self, command: str) -> None:
        """Kill a command's tree."""


class Process:
    """Made by `Channel.exec` and `Channel.attach`.

    Iterating gives the output as it comes, once; bytes that are not taken hold the command back.
    When the connection breaks, the channel makes another and output goes on where it was. A
    sandbox that is gone is a LostError, from every method.
    """

    def __init__(
        self,
        command: str,
        offsets: tuple[int, int],
        request: bytes | None,
        channel: Owner,
        program: str = "the command",
    ) -> None:
        self.id = command
        self._program = program
        self.pid = 0
        self._request = request
        self._sent = False
        self._channel = channel
        self._link: Link | None = None
        self._number = 0
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[ExecEnd] = asyncio.get_running_loop().create_future()
        self._pieces: collections.deque[Output] = collections.deque()
        self._changed = asyncio.Event()
        self._received = list(offsets)
        self._acked = list(offsets)
        self._input = Outflow(frames.STDIN_WINDOW)
        self._reader: asyncio.Task[object] | None = None  # who took a piece last
        self._last: Output | None = None  # acknowledged when the next is asked for

    # what the channel and its link call

    def begin(self, link: Link) -> None:
        """Start it or, when that was tried over another link, find it again."""
        if self._request is not None and not self._sent:
            self._sent = True
            self._open(link, Type.EXEC, self._request)
            return
        fields: list[tuple[int, Value]] = [
            (Tag.ID, self.id),
            (Tag.STDOUT_OFFSET, self._received[0]),
            (Tag.STDERR_OFFSET, self._received[1]),
        ]
        self._open(link, Type.ATTACH, frames.encode_fields(fields))

    def _open(self, link: Link, kind: Type, request: bytes) -> None:
        self._link, self._number = link, link.open(self)
        link.send(frames.encode(kind, self._number, request))

    def lost(self) -> None:
        """The link is gone; `begin` or `fail` follows."""
        self._link = None
        self._input.suspend()

    def fail(self, error: SandboxError) -> None:
        """Nothing more will be known of it."""
        for future in (self._started, self._ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, also when nobody waits
        self._finish()

    def received(self, frame: Frame) -> None:
        """A frame of its channel."""
        match frame.type:
            case Type.DATA:
                self._take_data(frame)
            case Type.ACK:
                self._input.acknowledge(frame.offset)
            case Type.REPLY:
                self._take_start(frames.fields_of(frame.payload))
            case Type.END:
                if not self._ended.done():
                    self._ended.set_result(replies.end_of(frames.fields_of(frame.payload)))
                self._finish()
            case Type.ERROR:
                self._take_error(frames.fields_of(frame.payload))
            case Type.CLOSED:
                self.fail(StateConflictError(f"another caller listens to command {self.id} now"))

    def _take_data(self, frame: Frame) -> None:
        number = frame.flags - 1
        if number not in (0, 1):
            raise frames.MalformedError("data of no stream")
        self._received[number] = frame.offset + len(frame.payload)
        self._pieces.append(Output(_STREAMS[number], frame.offset, frame.payload))
        self._changed.set()

    def _take_start(self, fields: frames.Fields) -> None:
        self.pid = frames.number(fields, Tag.PID)
        if self._link is not None:
            self._input.begin(self._link, self._number, frames.number(fields, Tag.STDIN_OFFSET))
        if not self._started.done():
            self._started.set_result(None)

    def _take_error(self, fields: frames.Fields) -> None:
        error = replies.error_of(fields, command=self.id, program=self._program)
        was_never_started = isinstance(error, UnknownSandboxError) and not self._started.done()
        if was_never_started and self._request is not None and self._link is not None:
            self._link.forget(self._number)
            self._open(self._link, Type.EXEC, self._request)
            return
        self.fail(error)

    def _finish(self) -> None:
        self._input.stop()
        self._changed.set()
        if self._link is not None:
            self._link.forget(self._number)
            self._link.send(frames.encode(Type.CLOSE, self._number))
            self._link = None
        self._channel.finished(self)

    # what the caller calls

    async def started(self) -> None:
        """Wait until it runs. Raises CommandFailedError when it cannot be started."""
        await asyncio.shield(self._started)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output:
        self._reader = asyncio.current_task()
        if self._last is not None:
            self._acknowledge(self._last)
        self._last = None
        while not self._pieces:
            if self._ended.done():
                self._ended.result()
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        self._last = self._pieces.popleft()
        return self._last

    def _acknowledge(self, piece: Output) -> None:
        number = _STREAMS.index(piece.stream)
        taken = piece.offset + len(piece.data)
        if taken - self._acked[number] < _ACK_BYTES or self._link is None:
            return
        self._acked[number] = taken
        payload = frames.encode_offset(taken)
        self._link.send(frames.encode(Type.ACK, self._number, payload, flags=number + 1))

    async def wait(self) -> ExecEnd:
        """How it ended; the rest of its output is dropped, unless another task is reading it."""
        reader = self._reader
        if reader is None or reader.done() or reader is asyncio.current_task():
            async for _ in self:
                pass
        return await asyncio.shield(self._ended)

    @property
    def end(self) -> ExecEnd | None:
        """How it ended, as far as is known now."""
        return None if not self._ended.done() or self._ended.exception() else self._ended.result()

    @property
    def stdin_offset(self) -> int:
        """How much input it has had, also from those who listened before us."""
        return self._input.acknowledged

    async def write_stdin(self, data: bytes | memoryview) -> None:
        """Returns when it is on its way; waits while the command does not read.

        What is written to a command that has ended or closed its input is dropped.
        """
        await self._input.write(data)

    def close_stdin(self) -> None:
        """The end of its input; on a terminal, the key for it."""
        self._input.close()

    def resize(self, rows: int, columns: int) -> None:
        """Another size of its terminal."""
        fields = frames.encode_fields([(Tag.ROWS, rows), (Tag.COLUMNS, columns)])
        self._tell(Type.RESIZE, fields)

    def signal(self, number: int) -> None:
        """Send a signal to its first process."""
        self._tell(Type.SIGNAL, frames.encode_fields([(Tag.SIGNAL, number)]))

    async def kill(self) -> None:
        """Kill its whole tree, also what it left in the background; returns when all is gone."""
        await self._channel.kill(self.id)

    def _tell(self, kind: Type, payload: bytes) -> None:
        if self._link is not None:
            self._link.send(frames.encode(kind, self._number, payload))

    def detach(self) -> None:
        """Listen no more; it goes on, and can be attached to again."""
        self.fail(StateConflictError(f"command {self.id} was detached from"))
