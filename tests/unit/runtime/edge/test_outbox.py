"""Output on its way to a client: whole, in order, bounded, and small ends in one piece."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from dsec_runtime import alive, wire
from dsec_runtime.edge.outbox import Outbox
from dsec_runtime.errors import LostError, SandboxError
from dsec_runtime.sdk.output import Position
from dsec_runtime.spec import EndCause, ExecEnd, Problem

if TYPE_CHECKING:
    from dsec_runtime.channel import Process

END = ExecEnd(cause=EndCause.EXITED, status=3)


class Output:
    """What stands in for a process: pieces, and how much of them was taken."""

    def __init__(self, pieces: Sequence[bytes], error: SandboxError | None = None) -> None:
        self.pieces = pieces
        self.error = error
        self.taken = 0
        self.gate: asyncio.Event | None = None

    async def __aiter__(self) -> AsyncIterator[tuple[str, int, bytes]]:
        offset = 0
        for number, piece in enumerate(self.pieces):
            if number and self.gate:
                await self.gate.wait()
            self.taken += 1
            yield "stdout", offset, piece
            offset += len(piece)
        if self.error:
            raise self.error


async def ended(_: object) -> ExecEnd:
    return END


async def as_it_is(error: SandboxError) -> SandboxError:
    return error


def outbox(output: Output) -> Outbox:
    return Outbox(cast("Process", output), ended, as_it_is)


async def frames(output: Output) -> list[wire.Frame]:
    parser = wire.Parser()
    found = []
    async for piece, _ in outbox(output).pieces():
        found += list(parser.feed(piece))
    assert parser.is_empty
    return found


async def test_silence_is_told_from_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "KEEPALIVE_S", 0.01)
    output = Output([b"a", b"b"])
    output.gate = asyncio.Event()
    position, seen, empty = Position(), b"", 0
    async for piece, _ in outbox(output).pieces():
        for frame in wire.Parser().feed(piece):
            empty += frame.kind == wire.Kind.STDOUT and not frame.payload
            found = position.take(frame)
            seen += found.data if found else b""
        if empty >= 3:
            output.gate.set()
    assert (seen, position.end) == (b"ab", END)
    assert empty >= 3


async def test_what_ends_at_once_is_one_piece() -> None:
    pieces = [each async for each in outbox(Output([b"a", b"b", b"c"])).pieces()]
    assert len(pieces) == 1
    assert pieces[0][1]


async def test_no_output_is_an_end_alone() -> None:
    (only,) = await frames(Output([]))
    assert msgspec.json.decode(only.payload, type=ExecEnd) == END


async def test_all_comes_in_order_with_its_offsets() -> None:
    data = [bytes([number % 251]) * (number * 700) for number in range(1, 120)]
    *output, last = await frames(Output(data))
    assert [bytes(frame.payload) for frame in output] == data
    assert [frame.offset for frame in output] == [
        sum(map(len, data[:number])) for number in range(len(data))
    ]
    assert last.kind == wire.Kind.END


async def test_the_first_output_does_not_wait_for_the_second() -> None:
    output = Output([b"first", b"second"])
    output.gate = asyncio.Event()
    async with contextlib.aclosing(outbox(output).pieces()) as pieces:
        piece, last = await anext(pieces)
        assert (b"first" in piece, last) == (True, False)
        output.gate.set()
        piece, _ = await anext(pieces)
        assert b"second" in piece


async def test_a_client_that_does_not_take_holds_the_command_back() -> None:
    output = Output([bytes(1 << 18)] * 100)
    async with contextlib.aclosing(outbox(output).pieces()) as pieces:
        await anext(pieces)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert output.taken < 12


async def test_an_error_is_told_instead_of_the_end() -> None:
    output, last = await frames(Output([b"x"], LostError("gone", hint="make another")))
    assert output.kind == wire.Kind.STDOUT
    told = msgspec.json.decode(last.payload, type=Problem)
    assert (last.kind, told.code, told.hint) == (wire.Kind.PROBLEM, "lost", "make another")
