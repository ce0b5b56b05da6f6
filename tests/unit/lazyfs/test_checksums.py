"""Parts of chunks in the cache: checked by themselves, and not more read than they need."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.chunks.frame import chunk_digest
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.checksums import PIECE_BYTES, pieces, sums_bytes, sums_of
from tests.support.lazy import Rig, read

LENGTH = 4 * PIECE_BYTES + 1000
DATA = random.Random(5).randbytes(LENGTH)
DIGEST = chunk_digest(DATA)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ChunkCache:
    made = ChunkCache(tmp_path_factory.mktemp("parts") / "chunks", 1 << 30)
    made.scan()
    return made


def entry(folder: Path, digest: bytes = DIGEST) -> Path:
    return next(folder.glob(f"**/{digest.hex()[2:]}"))


@given(st.integers(0, LENGTH - 1), st.integers(1, LENGTH))
def test_any_part_of_a_chunk(cache: ChunkCache, start: int, length: int) -> None:
    cache.store(DIGEST, DATA)
    end = min(LENGTH, start + length)
    assert bytes(cache.load(DIGEST, LENGTH, start, end) or b"") == DATA[start:end]


@given(st.integers(0, LENGTH - 1), st.integers(0, LENGTH + sums_bytes(LENGTH) - 1))
def test_a_part_is_refused_when_its_piece_or_its_check_value_is_damaged(
    cache: ChunkCache, start: int, at: int
) -> None:
    cache.store(DIGEST, DATA)
    path = entry(Path(cache._folder))
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    piece = at // PIECE_BYTES if at < LENGTH else (at - LENGTH) // sums_bytes(1)
    if start // PIECE_BYTES == piece:
        with pytest.raises(CorruptError):
            cache.load(DIGEST, LENGTH, start, start + 1)
        assert not cache.has(DIGEST)
    else:
        part = cache.load(DIGEST, LENGTH, start, start + 1)
        assert bytes(part or b"") == DATA[start : start + 1]
        with pytest.raises(CorruptError):
            cache.load(DIGEST, LENGTH)


def test_a_piece_in_another_place_or_of_another_chunk_is_refused() -> None:
    piece = DATA[:PIECE_BYTES]
    sums = {sums_of(DIGEST, piece, 0), sums_of(DIGEST, piece, 1), sums_of(DIGEST[::-1], piece, 0)}
    assert len(sums) == 3
    assert sums_of(DIGEST, piece * 2) == sums_of(DIGEST, piece) + sums_of(DIGEST, piece, 1)


def test_pieces_cover_a_part() -> None:
    assert pieces(LENGTH, 1, 2) == (0, PIECE_BYTES)
    assert pieces(LENGTH, PIECE_BYTES - 1, PIECE_BYTES + 1) == (0, 2 * PIECE_BYTES)
    assert pieces(LENGTH, LENGTH - 1, LENGTH) == (4 * PIECE_BYTES, LENGTH)


def test_lone_reads_take_a_part_and_reads_that_go_on_the_whole(tmp_path: Path) -> None:
    rig = Rig(tmp_path, memory_bytes=0)
    data = DATA + DATA[::-1]
    device = rig.device(data, [LENGTH] * 2)
    assert read(device, 0, 2 * LENGTH) == data
    rig.fetcher.drain()
    rig.memory.limit_bytes = 1 << 20
    for start in (5000, 60_000, LENGTH + 5000, LENGTH + 50_000):
        assert read(device, start, 1000) == data[start : start + 1000]
    assert rig.memory.held_bytes == 0
    assert read(device, 61_000, 1000) == DATA[61_000:62_000]
    assert rig.memory.held_bytes == LENGTH
    rig.fetcher.close()
