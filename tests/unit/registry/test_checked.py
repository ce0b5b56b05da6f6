"""The bytes of a blob are compared with its descriptor, and only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry import checked

DATA = b"abcdef"
BLOB = Descriptor.of(DATA, PACK_TYPE)


def test_all_kinds_of_source(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    for source in (DATA, iter([b"abc", b"", b"def"]), tmp_path / "file"):
        assert b"".join(checked.pieces(BLOB, source)) == DATA


@pytest.mark.parametrize("given", [[], [b"abc"], [b"abc", b"xyz"], [DATA, b"g"], [b"x" * 100]])
def test_other_bytes_are_an_error_at_the_end_at_the_latest(given: list[bytes]) -> None:
    with pytest.raises(CorruptError, match=BLOB.digest):
        list(checked.pieces(BLOB, iter(given)))


def test_what_is_checked_already_is_not_checked_again() -> None:
    given = checked.CheckedPieces(BLOB, [DATA])
    assert checked.pieces(BLOB, given) is given
    other = Descriptor.of(b"other!", PACK_TYPE)
    with pytest.raises(CorruptError, match=other.digest):
        list(checked.pieces(other, given))


def test_who_looks_sees_each_piece_before_it_goes_on() -> None:
    seen: list[bytes] = []
    pieces = checked.pieces(BLOB, iter([b"abc", b"def"])).shown(seen.append)
    assert next(pieces) == b"abc"
    assert seen == [b"abc"]

    def stop(_: bytes) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        next(checked.pieces(BLOB, DATA).shown(stop))
