"""Frames as bytes: what is encoded is decoded, however it is cut, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Decoder, Frame, MalformedError, Tag, Type

FRAMES = st.builds(
    Frame,
    st.integers(1, 255).filter(lambda kind: kind not in (Type.DATA, Type.ACK)),
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
    st.just(0),
)


def encoded(frame: Frame) -> bytes:
    return frames.encode(frame.type, frame.channel, frame.payload, flags=frame.flags)


@given(st.lists(st.tuples(FRAMES, st.integers(0, 3)), max_size=8), st.data())
def test_frames_arrive_whole_from_any_pieces(
    sent: list[tuple[Frame, int]], data: st.DataObject
) -> None:
    # Zeros between frames are frames of one byte that say nothing.
    stream = b"".join(encoded(frame) + bytes(zeros) for frame, zeros in sent)
    decoder, got = Decoder(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += decoder.feed(memoryview(stream)[:size])
        stream = stream[size:]
    assert got == [frame for frame, _ in sent]


@given(st.binary(max_size=400), st.data())
def test_the_rest_of_an_older_conversation_is_skipped(rest: bytes, data: st.DataObject) -> None:
    nonce = b"0123456789abcdef"
    hello = frames.encode(Type.HELLO, payload=frames.encode_fields([(Tag.NONCE, nonce)]))
    after = frames.encode(Type.PONG, 7)
    stream = rest + hello + after
    decoder, got = Decoder(nonce), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += decoder.feed(stream[:size])
        stream = stream[size:]
    assert [frame.type for frame in got] == [Type.HELLO, Type.PONG]


@pytest.mark.parametrize(
    "stream",
    [
        b"\x01\x00\x01\x00" + bytes(9),  # the reserved bytes are not zero
        b"\x01\x00\x00\x00" + bytes(4) + b"\x01\x00\x10\x00" + b"x",  # longer than allowed
        frames.encode(Type.PING)[:-1] + b"\x00",  # no trailer
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(MalformedError):
        Decoder().feed(stream)


def test_a_payload_has_a_bound() -> None:
    whole = frames.encode(Type.EXEC, 1, bytes(frames.MAX_PAYLOAD))
    assert len(Decoder().feed(whole)[0].payload) == frames.MAX_PAYLOAD
    with pytest.raises(ValueError, match="do not fit"):
        frames.encode(Type.EXEC, 1, bytes(frames.MAX_PAYLOAD + 1))


VALUES = st.one_of(st.binary(max_size=50), st.integers(0, 2**64 - 1))


@given(st.lists(st.tuples(st.integers(0, 65535), VALUES), max_size=10))
def test_fields_keep_their_order_and_values(fields: list[tuple[int, bytes | int]]) -> None:
    found = list(frames.each_field(frames.encode_fields(fields)))
    assert [tag for tag, _ in found] == [tag for tag, _ in fields]
    for (tag, value), (_, sent) in zip(found, fields, strict=True):
        if isinstance(sent, int):
            assert frames.number({tag: value}, tag) == sent
        else:
            assert value == sent


@given(st.binary(max_size=60))
def test_strange_fields_are_read_or_refused(payload: bytes) -> None:
    try:
        fields = list(frames.each_field(payload))
    except MalformedError:
        return
    assert frames.encode_fields(fields) == payload


def test_text_has_the_bytes_that_a_path_has() -> None:
    path = b"/a/\xff\xfe".decode(errors="surrogateescape")
    fields = frames.fields_of(frames.encode_fields([(Tag.PATH, path)]))
    assert frames.text(fields, Tag.PATH) == path
    with pytest.raises(MalformedError):
        frames.number(fields, Tag.PATH)


def test_data_comes_with_its_offset() -> None:
    stream = frames.encode_data(3, 2**40, b"words", flags=1)
    stream += frames.encode(Type.ACK, 3, frames.encode_offset(7), flags=2)
    assert Decoder().feed(stream) == [
        Frame(Type.DATA, 1, 3, b"words", 2**40),
        Frame(Type.ACK, 2, 3, b"", 7),
    ]
    with pytest.raises(MalformedError):
        Decoder().feed(frames.encode(Type.ACK, 3, b"short"))


def test_the_header_has_its_documented_layout() -> None:
    # docs/formats/guest-protocol.md: type, flags, zero, channel, length, payload, trailer.
    data = frames.encode_data(0x01020304, 0x0506, b"ab", flags=2)
    assert data == bytes.fromhex("50020000040302010a00000006050000000000006162a5")
