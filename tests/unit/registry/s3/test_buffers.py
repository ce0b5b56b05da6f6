"""Parts are gathered in few buffers, which all come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.registry.s3.buffers import Buffers


def taken(buffers: Buffers, pieces: Iterator[bytes], part_bytes: int) -> list[bytes]:
    """All parts, each given back before the next."""
    found = []
    for part in buffers.parts(pieces, part_bytes):
        found.append(bytes(part))
        buffers.give_back(part)
    return found


@given(st.lists(st.tuples(st.lists(st.binary(max_size=9)), st.integers(1, 12)), max_size=4))
def test_the_same_bytes_in_equal_parts(uploads: list[tuple[list[bytes], int]]) -> None:
    buffers = Buffers(1)
    for pieces, part_bytes in uploads:
        whole = b"".join(pieces)
        cuts = range(0, len(whole), part_bytes)
        expected = [whole[start : start + part_bytes] for start in cuts]
        assert taken(buffers, iter(pieces), part_bytes) == expected


def test_what_is_half_full_comes_back_when_its_source_fails() -> None:
    def failing() -> Iterator[bytes]:
        yield b"abc"
        raise OSError("no more")

    buffers = Buffers(1)
    for _ in range(3):
        with pytest.raises(OSError, match="no more"):
            taken(buffers, failing(), 8)
    assert taken(buffers, iter([b"abc"]), 2) == [b"ab", b"c"]


def test_who_wants_more_than_there_are_waits_until_one_comes_back() -> None:
    buffers, arrived = Buffers(1), threading.Event()

    def second() -> list[bytes]:
        arrived.set()
        return taken(buffers, iter([b"second"]), 6)

    first = buffers.parts(iter([b"first"]), 5)
    part = next(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second)
        arrived.wait()
        assert part == b"first"  # nobody writes to it
        assert not waiting.done()
        buffers.give_back(part)
        assert waiting.result() == [b"second"]
