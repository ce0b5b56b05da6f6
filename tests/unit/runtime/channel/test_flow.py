"""Bytes on their way: a window, acknowledgements, another connection."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.channel.flow import Outflow
from dsec_runtime.channel.frames import Decoder, MalformedError, Type
from dsec_runtime.channel.link import Link


class Peer:
    """In a link's place: takes what follows the offset that it has, as the agent does."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self._lost = False

    def link(self) -> Link:
        self._lost = False
        return cast(Link, self)

    def lose(self) -> None:
        """From now on nothing arrives."""
        self._lost = True

    def send(self, data: bytes) -> None:
        for frame in () if self._lost else Decoder().feed(data):
            self.ended = frame.type == Type.EOF
            if frame.type == Type.DATA:
                assert frame.offset == len(self.data)
                self.data += frame.payload

    async def drained(self) -> None:
        await asyncio.sleep(0)


def test_nothing_is_sent_beyond_the_window() -> None:
    async def life() -> None:
        peer, flow = Peer(), Outflow(100)
        flow.begin(peer.link(), 1, 0)
        writing = asyncio.ensure_future(flow.write(bytes(250)))
        for acknowledged, arrived in ((0, 100), (30, 130), (130, 230), (200, 250)):
            flow.acknowledge(acknowledged)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(peer.data) == arrived
        await writing
        flushing = asyncio.ensure_future(flow.flushed())
        await asyncio.sleep(0)
        assert not flushing.done()
        flow.acknowledge(250)
        await flushing

    asyncio.run(life())


@given(st.lists(st.tuples(st.binary(max_size=90), st.integers(0, 90), st.booleans()), max_size=12))
def test_what_is_lost_is_sent_again_and_nothing_twice(
    steps: list[tuple[bytes, int, bool]],
) -> None:
    async def life() -> None:
        peer, flow = Peer(), Outflow(10_000)
        flow.begin(peer.link(), 1, 0)
        whole, acknowledged = b"", 0
        for data, more, breaks in steps:
            if breaks:
                peer.lose()
            await flow.write(data)
            whole += data
            if breaks:
                flow.suspend()
                flow.begin(peer.link(), 2, len(peer.data))
            acknowledged = min(acknowledged + more, len(peer.data))
            flow.acknowledge(acknowledged)
        flow.close()
        assert bytes(peer.data) == whole
        assert peer.ended

    asyncio.run(life())


def test_what_was_never_sent_cannot_be_acknowledged() -> None:
    flow = Outflow(100)
    with pytest.raises(MalformedError):
        flow.acknowledge(1)


def test_writing_to_one_who_stopped_reading_ends() -> None:
    async def life() -> None:
        flow = Outflow(10)
        writing = asyncio.ensure_future(flow.write(bytes(1000)))
        await asyncio.sleep(0)
        flow.stop()
        await writing
        await flow.flushed()

    asyncio.run(life())


def test_a_second_writer_goes_on_after_the_first() -> None:
    async def life() -> None:
        peer, flow = Peer(), Outflow(100)
        peer.data += b"first"
        flow.begin(peer.link(), 1, 5)
        flow.acknowledge(2)  # the agent has more than it could pass on
        await flow.write(b"second")
        assert bytes(peer.data) == b"firstsecond"
        flow.acknowledge(11)
        await flow.flushed()

    asyncio.run(life())
