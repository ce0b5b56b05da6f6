"""Ranges of objects: what a server answers is held against what was asked.

A body that ends early is continued where it broke off.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError, IncompleteReadError

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry.files import PIECE_BYTES
from dsec_layers.registry.s3.bucket import Bucket
from dsec_layers.registry.s3.failures import explained, judge, status_of

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


def read_range(
    bucket: Bucket, name: str, blob: Descriptor, offset: int, length: int
) -> Iterator[bytes]:
    """The bytes of a blob, in pieces of at most 1 MiB; `length` of them, never fewer.

    Raises NotFoundError, CorruptError when the object has another size, or StoreError.
    """
    position, end = offset, offset + length
    delays = bucket.patience.delays()
    with explained(f"cannot read {name} in {bucket.url}"):
        while position < end or not blob.size:
            try:
                for piece in _one_answer(bucket, name, blob, position, end):
                    position += len(piece)
                    delays = bucket.patience.delays()  # it goes on: as patient as at first
                    yield piece
                if not blob.size:
                    return
                if position < end:
                    raise IncompleteReadError(actual_bytes=position, expected_bytes=end)
            except (BotoCoreError, ClientError) as error:
                if not bucket.patience.again(error, judge, delays):
                    raise


def _one_answer(
    bucket: Bucket, name: str, blob: Descriptor, start: int, end: int
) -> Iterator[bytes]:
    """What one request gives: not more than was asked for, perhaps less."""
    whole = start == 0 and end == blob.size
    try:
        answer = bucket.open(name, "" if whole else f"bytes={start}-{end - 1}")
    except ClientError as error:
        if status_of(error) == 416:
            raise CorruptError(f"blob {blob.digest} ends early in {bucket.url}") from error
        raise
    if answer is None:
        raise NotFoundError(f"no blob {blob.digest} in {bucket.url}")
    with contextlib.closing(answer["Body"]) as body:
        skip = _bytes_before(bucket, blob, answer, start)
        left = end - start
        while skip + left:
            piece = body.read(min(PIECE_BYTES, skip + left))
            if not piece:
                return
            passed = min(skip, len(piece))
            skip -= passed
            left -= len(piece) - passed
            if passed < len(piece):
                yield piece[passed:]


def _bytes_before(
    bucket: Bucket, blob: Descriptor, answer: GetObjectOutputTypeDef, start: int
) -> int:
    """How many bytes of the body come before `start`: all, of a server that knows no ranges."""
    stated = answer.get("ContentRange", "")
    if not stated:
        _check_size(bucket, blob, answer["ContentLength"])
        return start
    match = _CONTENT_RANGE.fullmatch(stated)
    if match is None or int(match[1]) != start or int(match[2]) >= blob.size:
        asked = f"asked for bytes from {start} of {blob.digest}"
        raise StoreError(f"{bucket.url} answers {stated!r} when {asked}")
    if match[3] != "*":
        _check_size(bucket, blob, int(match[3]))
    return 0


def _check_size(bucket: Bucket, blob: Descriptor, found: int) -> None:
    if found != blob.size:
        sizes = f"{found} instead of {blob.size} bytes"
        raise CorruptError(f"blob {blob.digest} has {sizes} in {bucket.url}")
