"""Canonical JSON.

The one byte string of a value, so that equal values have equal digests on any machine.

UTF-8, keys sorted, no white space, no trailing newline, fields at their default value left out.
Numbers are integers.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dsec_layers.errors import CorruptError, InvalidInputError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return the canonical JSON of `value`. Raises InvalidInputError for text beyond Unicode."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{error.object!r} is no UTF-8 and cannot be recorded") from error


def decode(data: bytes, type_: type[T], *, what: str) -> T:
    """Parse `data` as `type_`.

    Raises CorruptError naming `what` when it is malformed or of another shape.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"{what} is malformed: {error}") from error
