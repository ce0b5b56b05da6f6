"""Frames of streams, whole and in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime import wire
from dsec_runtime.wire import Kind

frames = st.tuples(st.sampled_from(Kind), st.binary(max_size=200), st.integers(0, 2**64 - 1))


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 60), max_size=20))
def test_pieces_of_any_size_give_the_same_frames(
    told: list[tuple[Kind, bytes, int]], cuts: list[int]
) -> None:
    stream = b"".join(wire.frame(kind, payload, offset) for kind, payload, offset in told)
    parser, found, at = wire.Parser(), [], 0
    for size in [*cuts, len(stream)]:
        found += [
            (each.kind, bytes(each.payload), each.offset)
            for each in parser.feed(stream[at : at + size])
        ]
        at += size
    assert found == told
    assert parser.is_empty


@given(frames)
def test_a_message_is_a_frame(told: tuple[Kind, bytes, int]) -> None:
    kind, payload, offset = told
    found = wire.parse(wire.frame(kind, payload, offset))
    assert (found.kind, bytes(found.payload), found.offset) == told


@pytest.mark.parametrize("message", [b"", bytes(15), wire.frame(Kind.STDIN, b"ab")[:-1]])
def test_what_is_no_frame(message: bytes) -> None:
    with pytest.raises(wire.MalformedError):
        wire.parse(message)


def test_no_length_makes_us_keep_gigabytes() -> None:
    head = bytearray(wire.frame(Kind.STDOUT))
    head[4:8] = b"\xff\xff\xff\xff"
    with pytest.raises(wire.MalformedError):
        list(wire.Parser().feed(bytes(head)))


def test_sizes() -> None:
    assert wire.parse_size(wire.size_payload(24, 80)) == (24, 80)
    with pytest.raises(wire.MalformedError):
        wire.parse_size(b"abc")
