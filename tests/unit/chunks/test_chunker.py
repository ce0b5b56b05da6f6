from __future__ import annotations

import hashlib
import random

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.chunks import constants as c
from dsec_layers.chunks.chunker import Chunker, Piece
from dsec_layers.chunks.device import padded
from dsec_layers.model.tree import BLOCK_SIZE


def noise(seed: int, length: int) -> bytes:
    """Bytes that are the same on every machine and in every Python."""
    return hashlib.shake_128(seed.to_bytes(8, "little")).digest(length)


def cut(contents: list[bytes], *, stream: bool = False) -> list[bytes]:
    """The chunks of `contents` laid out in order."""
    chunks: list[bytes] = []

    def emit(pieces: list[Piece]) -> None:
        chunks.append(b"".join(pieces))

    chunker = Chunker(emit)
    for data in contents:
        if stream and len(data) >= c.LARGE_FILE_BYTES:
            pieces = (data[at : at + 99_991] for at in range(0, len(data), 99_991))
            chunker.add_stream(blake3.blake3(data).digest(), pieces)
        else:
            chunker.add(blake3.blake3(data).digest(), data)
    chunker.flush()
    return chunks


def device(contents: list[bytes]) -> bytes:
    return b"".join(data + bytes(padded(len(data)) - len(data)) for data in contents)


def package(seed: int, files: int = 3000) -> list[bytes]:
    """Contents with sizes as in a source tree: most of them small, a few large."""
    rng = random.Random(seed)
    sizes = [min(int(rng.lognormvariate(8, 1.7)), 3_000_000) for _ in range(files)]
    return [noise(seed * 100_000 + number, size) for number, size in enumerate(sizes)]


def test_golden_boundaries() -> None:
    """When boundaries move, no new layer shares a chunk with an old one.

    A change here is a decision, never an accident: it can come from a constant, from the group rule
    or from another version of pyfastcdc, and makes every store keep the data of each layer twice.
    """
    chunks = cut([*package(1, 300), noise(2, 2_000_000), b"tail"])
    lengths = [len(chunk) for chunk in chunks]
    names = blake3.blake3(b"".join(blake3.blake3(chunk).digest() for chunk in chunks)).hexdigest()
    assert lengths == GOLDEN_LENGTHS
    assert names == GOLDEN_NAMES


GOLDEN_LENGTHS = [
    385024,
    122880,
    393216,
    135168,
    327680,
    196608,
    303104,
    94208,
    282624,
    135168,
    106496,
    57344,
    323679,
    44961,
    196608,
    167936,
    69632,
    159744,
    221184,
    102400,
    184320,
    286720,
    284050,
    338967,
    307014,
    350257,
    274351,
    335821,
    112484,
    4096,
]
GOLDEN_NAMES = "25443688354acda3abede2aff0cae86d75b1818a1f5b29546a35e7751ad32183"


small = st.builds(noise, st.integers(0, 50), st.sampled_from([0, 1, 4095, 4096, 4097, 70_000]))
large = st.builds(
    noise, st.integers(0, 9), st.sampled_from([c.LARGE_FILE_BYTES - 1, c.LARGE_FILE_BYTES, 999_999])
)
many = st.lists(st.one_of(small, small, small, large), max_size=40)


@given(contents=many)
def test_chunks_tile_the_device(contents: list[bytes]) -> None:
    chunks = cut(contents)
    assert b"".join(chunks) == device(contents)
    assert all(0 < len(chunk) <= c.MAX_CHUNK_BYTES for chunk in chunks)


@given(contents=many)
def test_streaming_cuts_as_memory_does(contents: list[bytes]) -> None:
    assert cut(contents, stream=True) == cut(contents)


def test_a_large_content_begins_and_ends_its_own_chunks() -> None:
    big = noise(1, 1_500_001)
    alone = cut([big])
    chunks = cut([b"before", big, b"after"])
    assert chunks == [device([b"before"]), *alone, device([b"after"])]
    assert len(alone) > 2
    assert len(alone[-1]) % BLOCK_SIZE != len(alone[-1]) % 7  # the end is padded, not cut


def test_groups_have_the_target_size_whatever_the_sizes_of_files() -> None:
    for size in (100, 5_000, 60_000):
        chunks = cut([noise(number, size) for number in range(20_000_000 // padded(size))])
        mean = sum(map(len, chunks)) / len(chunks)
        assert 0.7 * c.GROUP_TARGET_BYTES < mean < 1.4 * c.GROUP_TARGET_BYTES


def test_no_group_is_longer_than_the_format_allows() -> None:
    """Even when no digest ever ends a group."""
    groups: list[int] = []
    chunker = Chunker(lambda pieces: groups.append(sum(map(len, pieces))))
    for _ in range(300):
        chunker.add(b"\xff" * 32, bytes(100_000))
    chunker.flush()
    assert max(groups) <= c.MAX_CHUNK_BYTES
    assert sum(groups) == 300 * padded(100_000)


@pytest.mark.parametrize("where", [0, 1500, 2999])
def test_an_inserted_changed_or_removed_file_alters_its_surroundings_only(where: int) -> None:
    files = package(3)
    known = set(cut(files))
    total = sum(map(len, known))
    for changed in (
        [*files[:where], b"inserted", *files[where:]],
        [*files[:where], b"changed", *files[where + 1 :]],
        [*files[:where], *files[where + 1 :]],
    ):
        new = sum(len(chunk) for chunk in cut(changed) if chunk not in known)
        assert new < 0.08 * total


def test_bytes_inserted_into_a_large_file_alter_one_or_two_chunks() -> None:
    big = noise(5, 8_000_000)
    known = set(cut([big]))
    chunks = cut([big[:4_000_000] + b"inserted" + big[4_000_000:]])
    assert sum(chunk not in known for chunk in chunks[:-1]) <= 3
