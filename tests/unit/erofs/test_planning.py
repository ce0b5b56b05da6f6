from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.erofs.planning import (
    MAX_CHUNKS,
    Extent,
    chunk_bits,
    chunk_count,
    erofs_runs,
    join,
)

KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40


def test_one_chunk_covers_a_whole_file() -> None:
    assert [chunk_bits(size, 0) for size in (0, 1, 4096, 4097, 3 * 4096, 8 * TIB)] == [
        0,
        0,
        0,
        1,
        2,
        31,
    ]
    assert [chunk_count(size, chunk_bits(size, 0)) for size in (1, 4097, 8 * TIB)] == [1, 1, 1]


def test_edges_bound_the_chunk() -> None:
    assert chunk_bits(MIB, 64 * KIB | 128 * KIB) == 4
    assert chunk_bits(MIB, 4096 | 128 * KIB) == 0
    assert chunk_bits(16 * KIB, 64 * KIB) == 2


def test_runs_stay_exact_up_to_the_limit() -> None:
    runs = [(4096, 4096)]
    assert erofs_runs(MAX_CHUNKS * 4096, runs) == runs
    assert erofs_runs(100, [(0, 100)]) == [(0, 100)]
    assert erofs_runs(TIB, []) == []
    assert erofs_runs(TIB, [(0, TIB)]) == [(0, TIB)]


def test_runs_stay_exact_where_they_are_aligned_well() -> None:
    assert erofs_runs(TIB, [(MIB, MIB), (8 * MIB, 2 * MIB)]) == [(MIB, MIB), (8 * MIB, 2 * MIB)]


def test_a_terabyte_with_four_kib_is_widened_to_one_chunk() -> None:
    assert erofs_runs(TIB, [(TIB // 2 + 4096, 4096)]) == [(TIB // 2, MIB)]
    assert erofs_runs(TIB, [(MIB - 4096, 8192), (5 * MIB, 4096)]) == [(0, 2 * MIB), (5 * MIB, MIB)]


def test_widened_runs_end_with_the_file() -> None:
    assert erofs_runs(TIB + 100, [(4096, 4096), (TIB, 100)]) == [(0, 2 * MIB), (TIB, 100)]


@given(st.integers(1, 64 * TIB), st.lists(st.integers(0, 2**34), max_size=8), st.integers(1, 2**20))
def test_widened_runs_cover_the_data_and_bound_the_index(
    size: int, blocks: list[int], length_blocks: int
) -> None:
    runs: list[tuple[int, int]] = []
    for block in sorted(set(blocks)):
        start, end = block * 4096, min((block + length_blocks) * 4096, size)
        if start < size and (not runs or sum(runs[-1]) < start):
            runs.append((start, end - start))
    widened = erofs_runs(size, runs)
    for offset, length in runs:
        assert any(o <= offset and offset + length <= o + n for o, n in widened)
    for (one, length), (other, _) in pairwise(widened):
        assert one + length < other
    extents = [Extent(o, o, n) for o, n in widened]
    joined, edges = join(size, extents)
    assert joined == extents
    assert chunk_count(size, chunk_bits(size, edges)) <= MAX_CHUNKS


def test_extents_that_touch_in_file_and_device_are_one() -> None:
    extents = [Extent(0, 8192, 4096), Extent(4096, 12288, 4096), Extent(8192, 0, 100)]
    assert join(8292, extents) == ([Extent(0, 8192, 8192), Extent(8192, 0, 100)], 8192)


@pytest.mark.parametrize(
    "extents",
    [
        [Extent(4096, 0, 4096), Extent(0, 4096, 4096)],
        [Extent(0, 0, 8192), Extent(4096, 8192, 4096)],
        [Extent(100, 0, 4096)],
        [Extent(0, 100, 4096)],
        [Extent(0, 0, 100)],
        [Extent(0, 0, 0)],
        [Extent(0, 0, 16384)],
    ],
)
def test_bad_extents_are_refused(extents: list[Extent]) -> None:
    with pytest.raises(ValueError, match="extent"):
        join(3 * 4096, extents)
