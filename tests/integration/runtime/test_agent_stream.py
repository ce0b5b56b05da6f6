"""The agent on one byte stream, as a virtual machine has it: hosts come and go on it."""

from __future__ import annotations

import collections
import itertools
import socket
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Decoder, Frame, Tag, Type
from dsec_runtime.guest import binary
from tests.support import agents, profiles

pytestmark = pytest.mark.root

_NUMBERS = itertools.count()
_ZEROS = bytes(frames.MAX_PAYLOAD + 13)


@pytest.fixture(scope="module")
def stream() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, agents.first_process([str(binary.path())], theirs):
        theirs.close()
        ours.settimeout(60)
        yield ours


class Host:
    """One after the other on the same stream."""

    def __init__(self, stream: socket.socket, nonce: bytes) -> None:
        self._stream = stream
        self._decoder = Decoder(nonce)
        self._frames: collections.deque[Frame] = collections.deque()
        fields: list[tuple[int, frames.Value]] = [(Tag.NONCE, nonce), (Tag.VERSION, 1)]
        hello = frames.encode(Type.HELLO, payload=frames.encode_fields(fields))
        self._stream.sendall(_ZEROS + hello)
        assert self.receive(Type.HELLO)

    def send(self, data: bytes) -> None:
        self._stream.sendall(data)

    def receive(self, kind: Type) -> Frame:
        """The next frame of this type; others are passed over."""
        while True:
            while self._frames:
                if (frame := self._frames.popleft()).type == kind:
                    return frame
            self._frames += self._decoder.feed(self._stream.recv(1 << 16))


def _exec(channel: int, name: str, *argv: str) -> bytes:
    fields: list[tuple[int, frames.Value]] = [(Tag.ID, name), (Tag.FLAGS, 1)]
    fields += [(Tag.ARG, word) for word in argv]
    return frames.encode(Type.EXEC, channel, frames.encode_fields(fields))


@hypothesis_settings(profiles.fewest, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nonce=st.binary(min_size=16, max_size=16), data=st.data())
def test_a_host_that_left_anywhere_is_followed_by_another(
    stream: socket.socket, nonce: bytes, data: st.DataObject
) -> None:
    first = Host(stream, nonce)
    name = f"command {next(_NUMBERS)}"
    first.send(_exec(1, name, "cat"))
    first.receive(Type.REPLY)
    talk = frames.encode_data(1, 0, b"words") + frames.encode(Type.PING, 2) + b"\xff" * 20
    first.send(talk[: data.draw(st.integers(0, len(talk)))])
    second = Host(stream, nonce[::-1] + b"2")
    # The zeros that completed its last frame are nobody's input.
    attach = frames.encode_fields([(Tag.ID, name)])
    second.send(frames.encode(Type.ATTACH, 1, attach))
    reply = frames.fields_of(second.receive(Type.REPLY).payload)
    taken = frames.number(reply, Tag.STDIN_OFFSET)
    assert taken in (0, 5)
    second.send(frames.encode_data(1, taken, b"words"[taken:]) + frames.encode(Type.EOF, 1))
    assert second.receive(Type.DATA).payload == b"words"
    end = frames.fields_of(second.receive(Type.END).payload)
    assert frames.number(end, Tag.STATUS) == 0
    second.send(frames.encode(Type.CLOSE, 1))


def test_the_program_wants_to_be_the_first_process() -> None:
    done = subprocess.run([binary.path()], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"first process" in done.stderr
