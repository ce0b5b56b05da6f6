"""Compressed streams: equal bytes however they come and however many threads there are."""

from __future__ import annotations

import io
import random
import threading

import pytest

from dsec_layers.exporting.compression import BLOCK_BYTES, Compression, compressor
from dsec_layers.sources.compression import plain

_RANDOM = random.Random(1)
_WORDS = [_RANDOM.randbytes(40) for _ in range(500)]
_DATA = b"".join(_RANDOM.choices(_WORDS, k=3 * BLOCK_BYTES // 40 + 77))


def compressed(data: bytes, compression: Compression, piece: int, workers: int) -> bytes:
    out = io.BytesIO()
    with compressor(compression, out.write, workers) as packer:
        for start in range(0, len(data), piece):
            packer.write(data[start : start + piece])
        packer.finish()
    return out.getvalue()


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(_DATA)])
def test_pieces_and_threads_leave_no_trace(compression: Compression, size: int) -> None:
    data = _DATA[:size]
    whole = compressed(data, compression, 1 << 30, 1)
    assert plain(io.BytesIO(whole), name="t").read() == data
    assert compressed(data, compression, 100_003, 3) == whole


def test_blocks_see_the_one_before() -> None:
    """What repeats across a boundary costs next to nothing."""
    half = random.Random(2).randbytes(BLOCK_BYTES // 64)
    data = bytes(BLOCK_BYTES - len(half)) + half + half
    assert len(compressed(data, Compression.GZIP, 1 << 20, 2)) < len(half) * 1.2


def test_one_that_is_left_early_ends_its_threads() -> None:
    before = threading.active_count()
    with compressor(Compression.GZIP, io.BytesIO().write, 2) as packer:
        packer.write(_DATA)
        assert threading.active_count() > before
    assert threading.active_count() == before
