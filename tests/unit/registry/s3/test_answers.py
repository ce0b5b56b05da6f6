"""Answers of servers that keep the protocol badly, held against what was asked."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsec_layers.errors import CorruptError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry.patience import Patience
from dsec_layers.registry.s3.bucket import Bucket
from dsec_layers.registry.s3.location import Location
from dsec_layers.registry.s3.store import S3Store

DATA = bytes(range(200))
BLOB = Descriptor.of(DATA, PACK_TYPE)
Answer = Callable[[int, int], dict[str, Any]]


def part(start: int, end: int, *, total: object = len(DATA), shift: int = 0) -> dict[str, Any]:
    """A 206 with these bytes."""
    body = DATA[start:end]
    stated = f"bytes {start + shift}-{end - 1}/{total}"
    return {"ContentLength": len(body), "ContentRange": stated, "Body": io.BytesIO(body)}


def whole(data: bytes = DATA) -> dict[str, Any]:
    """A 200."""
    return {"ContentLength": len(data), "Body": io.BytesIO(data)}


def store(answer: Answer) -> S3Store:
    """A store whose server answers so for a range."""

    def get_object(*, Bucket: str, Key: str, Range: str = "bytes=0-199") -> dict[str, Any]:
        start, _, last = Range.removeprefix("bytes=").partition("-")
        return answer(int(start), int(last) + 1)

    client = cast(Any, SimpleNamespace(get_object=get_object))
    patience = Patience(attempts=3, sleep=lambda _: None)
    return S3Store(Bucket(client, Location("bucket"), patience))


@pytest.mark.parametrize(
    "answer",
    [
        part,
        lambda start, end: part(start, end, total="*"),
        lambda start, end: part(start, min(end, start + 7)),
        lambda start, end: part(start, min(end + 20, 200)),
        lambda start, end: whole(),
    ],
    ids=["right", "total unknown", "little at a time", "more than asked", "no ranges"],
)
def test_what_is_taken(answer: Answer) -> None:
    for offset, length in ((0, 200), (0, 1), (5, 100), (199, 1), (50, 150)):
        assert store(answer).read(BLOB, offset, length) == DATA[offset : offset + length]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda start, end: part(start, end, shift=1), StoreError),
        (lambda start, end: {**part(start, end), "ContentRange": "lines 1-2/3"}, StoreError),
        (lambda start, end: part(start, end, total=199), CorruptError),
        (lambda start, end: part(start, end, total=201), CorruptError),
        (lambda start, end: whole(DATA[:-1]), CorruptError),
        (lambda start, end: whole(DATA + b"x"), CorruptError),
        (lambda start, end: {"Body": io.BytesIO(DATA)}, StoreError),
        (lambda start, end: {**part(start, end), "Body": io.BytesIO(b"")}, StoreError),
        (lambda start, end: {**whole(), "Body": io.BytesIO(DATA[:5])}, StoreError),
    ],
)
def test_what_is_refused(answer: Answer, error: type[Exception]) -> None:
    with pytest.raises(error):
        store(answer).read(BLOB, 10, 50)


def test_other_bytes_are_corrupt() -> None:
    wrong = store(lambda start, end: whole(DATA[:-1] + b"x"))
    with pytest.raises(CorruptError, match=BLOB.digest):
        wrong.read(BLOB)
    with pytest.raises(CorruptError, match=BLOB.digest):
        list(wrong.stream(BLOB))
