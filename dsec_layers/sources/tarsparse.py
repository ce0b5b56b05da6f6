"""Maps of sparse members: the old GNU format in the header, and the pax formats 0.0, 0.1 and 1.0.

Source: the GNU tar manual, "Storing Sparse Files". A map is a tuple of (offset in the file, length)
of the runs that the archive holds; between them are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dsec_layers.sources.tarheader import MalformedError, parse_count, parse_number

Runs = tuple[tuple[int, int], ...]

_IN_HEADER: Final = slice(386, 482)
_IN_EXTENSION: Final = slice(0, 504)
_PAIR_BYTES: Final = 24
_MAX_DIGITS: Final = 20
_MAX_RUNS: Final = 1 << 20  # some 100 MB of memory
_TOO_MANY: Final = f"a sparse map has more than {_MAX_RUNS} runs"


def old_gnu_map(block: bytes, read_block: Callable[[], bytes]) -> tuple[int, Runs]:
    """Size and runs of a member of type S; `read_block` gives the blocks after the header."""
    size = parse_number(block[483:495])
    runs = _pairs(block[_IN_HEADER])
    extended = block[482]
    while extended:
        if len(runs) > _MAX_RUNS:
            raise MalformedError(_TOO_MANY)
        block = read_block()
        runs += _pairs(block[_IN_EXTENSION])
        extended = block[504]
    return size, _plain(runs)


def pax_map(
    records: Sequence[tuple[bytes, bytes]], read_block: Callable[[], bytes]
) -> tuple[int, Runs] | None:
    """Size and runs of a sparse member in a pax format, or None. The map of 1.0 is in the data."""
    fields = {keyword: value for keyword, value in records if keyword.startswith(b"GNU.sparse.")}
    if not fields:
        return None
    size = fields.get(b"GNU.sparse.realsize", fields.get(b"GNU.sparse.size"))
    if size is None:
        raise MalformedError("a sparse member has no size")
    if fields.get(b"GNU.sparse.major") == b"1":
        numbers = _leading_numbers(read_block)
    elif b"GNU.sparse.map" in fields:
        text = fields[b"GNU.sparse.map"]
        if text.count(b",") > 2 * _MAX_RUNS:
            raise MalformedError(_TOO_MANY)
        numbers = [parse_count(word) for word in text.split(b",")] if text else []
    else:
        pair = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")
        numbers = [parse_count(value) for keyword, value in records if keyword in pair]
    if len(numbers) % 2:
        raise MalformedError("a sparse map has an odd number of fields")
    return parse_count(size), _plain(zip(numbers[::2], numbers[1::2], strict=True))


def check_map(size: int, runs: Runs, stored: int) -> None:
    """Raise MalformedError unless runs are in order, within `size`, and `stored` bytes in all."""
    end = 0
    for offset, length in runs:
        if offset < end or length < 0:
            raise MalformedError("a sparse map is not in order")
        end = offset + length
    if end > size or sum(length for _, length in runs) != stored:
        raise MalformedError("a sparse map does not fit the member's size")


def _leading_numbers(read_block: Callable[[], bytes]) -> list[int]:
    """The map of format 1.0: a count and that many pairs, as lines, padded to a block."""
    text = b""
    lines: list[bytes] = []
    wanted = 1
    while len(lines) < wanted:
        text += read_block()
        *found, rest = text.split(b"\n")
        lines += found
        text = rest
        if lines:
            wanted = 1 + 2 * parse_count(lines[0])
        if wanted > 1 + 2 * _MAX_RUNS:
            raise MalformedError(_TOO_MANY)
        if len(lines) < wanted and len(text) > _MAX_DIGITS:
            raise MalformedError("a sparse map is damaged")
    return [parse_count(line) for line in lines[1:wanted]]


def _pairs(area: bytes) -> list[tuple[int, int]]:
    half = _PAIR_BYTES // 2
    starts = range(0, len(area), _PAIR_BYTES)
    return [
        (parse_number(area[at : at + half]), parse_number(area[at + half : at + _PAIR_BYTES]))
        for at in starts
    ]


def _plain(pairs: Iterable[tuple[int, int]]) -> Runs:
    """Without empty runs: writers end a map with one at the file's end."""
    return tuple(pair for pair in pairs if pair[1])
