"""Pieces of the traffic with a registry that need no registry."""

from __future__ import annotations

import pytest
import requests

from dsec_layers.registry.oci import reading, writing
from dsec_layers.registry.oci.places import Places


class Drip:
    """A body that comes a byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read1(self, size: int, decode_content: bool) -> bytes:
        assert size
        assert not decode_content
        piece, self.data = self.data[:1], self.data[1:]
        return piece


def dripping(data: bytes) -> requests.Response:
    response = requests.Response()
    response.raw = Drip(data)
    return response


def test_a_body_that_drips_is_given_up() -> None:
    times = iter(range(0, 10_000, 50))
    body = reading._body(dripping(b"abcdef"), 6, clock=lambda: next(times))
    assert next(body) == b"abc"
    with pytest.raises(TimeoutError):
        next(body)


def test_a_body_that_is_too_short_gives_what_it_has() -> None:
    body = reading._body(dripping(b"abc"), 6)
    assert next(body) == b"abc"
    with pytest.raises(ConnectionError):
        next(body)
    assert list(reading._body(dripping(b"abcdef"), 3)) == [b"abc"]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17])
def test_parts_have_one_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(writing, "PART_BYTES", 8)
    data = bytes(range(size))
    for step in (1, 3, 8, 20):
        pieces = (data[start : start + step] for start in range(0, size, step))
        parts = list(writing._parts(pieces))
        assert b"".join(parts) == data
        assert all(len(part) == 8 for part in parts[:-1])


def test_places_forget_the_oldest() -> None:
    places = Places(most=3)
    places.learn("a", ["1", "2"])
    places.learn("b", ["1", "3", "4"])
    assert [places.find(digest) for digest in "1234"] == ["b", None, "b", "b"]
