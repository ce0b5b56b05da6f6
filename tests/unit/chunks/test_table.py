from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.chunks.constants import MAX_CHUNK_BYTES
from dsec_layers.chunks.table import Chunk, ChunkTable, PackRef
from dsec_layers.errors import CorruptError

PACKS = [PackRef(b"\x11" * 32, 10_000), PackRef(b"\x22" * 32, 2**33)]
CHUNKS = [
    Chunk(0, 16, 4096, 100, 0, b"a" * 32),
    Chunk(4096, 2**32 + 5, 777, 777, 1, b"b" * 32),
    Chunk(4873, 116, MAX_CHUNK_BYTES, 9000, 0, b"c" * 32),
]
DEVICE_BYTES = 4873 + MAX_CHUNK_BYTES


def test_a_table_is_what_was_encoded() -> None:
    table = ChunkTable.decode(ChunkTable(PACKS, CHUNKS).encode())
    assert list(table) == CHUNKS
    assert table.packs == tuple(PACKS)
    assert table.device_bytes == DEVICE_BYTES
    assert [table[0], table[-1]] == [CHUNKS[0], CHUNKS[2]]


def test_the_encoding_is_the_documented_one() -> None:
    data = ChunkTable(PACKS, CHUNKS).encode()
    assert data[:32] == b"DSECTBL\n" + struct.pack("<IIQQ", 1, 2, 3, DEVICE_BYTES)
    assert data[32:72] == b"\x11" * 32 + struct.pack("<Q", 10_000)
    record = struct.pack("<QQIII", 4096, 2**32 + 5, 777, 777, 1) + b"b" * 32
    assert data[32 + 2 * 40 + 60 :][:60] == record
    assert len(data) == 32 + 2 * 40 + 3 * 60


def test_chunks_are_found_by_device_offset() -> None:
    table = ChunkTable(PACKS, CHUNKS)
    assert [table.index_at(at) for at in (0, 4095, 4096, 4872, 4873)] == [0, 0, 1, 1, 2]
    assert table.index_at(DEVICE_BYTES - 1) == 2
    assert table.covering(4095, 2) == range(2)
    assert table.covering(4096, 777) == range(1, 2)
    for outside in (-1, DEVICE_BYTES):
        with pytest.raises(IndexError):
            table.index_at(outside)
    with pytest.raises(IndexError):
        table[3]


def test_an_empty_table_has_no_chunks() -> None:
    table = ChunkTable.decode(ChunkTable([], []).encode())
    assert (len(table), table.device_bytes, list(table)) == (0, 0, [])


@pytest.mark.parametrize(
    ("chunk", "changes"),
    [
        (1, {"device_offset": 4097}),
        (1, {"device_offset": 4095}),
        (0, {"device_offset": 2**64 - 1}),
        (1, {"length": 0, "stored_length": 0}),
        (1, {"stored_length": 0}),
        (1, {"stored_length": 778}),
        (2, {"length": MAX_CHUNK_BYTES + 1}),
        (1, {"pack": 2}),
        (0, {"pack_offset": 9901}),
        (0, {"pack_offset": 2**64 - 1}),
    ],
)
def test_an_inconsistent_table_is_corrupt(chunk: int, changes: dict[str, Any]) -> None:
    chunks = list(CHUNKS)
    chunks[chunk] = chunks[chunk]._replace(**changes)
    with pytest.raises(CorruptError):
        ChunkTable(PACKS, chunks)
    data = bytearray(ChunkTable(PACKS, CHUNKS).encode())
    at = 32 + 2 * 40 + 60 * chunk
    bad = chunks[chunk]
    data[at : at + 60] = struct.pack("<QQIII32s", *bad)
    with pytest.raises(CorruptError):
        ChunkTable.decode(bytes(data))


@pytest.mark.parametrize("at", [0, 7, 8, 12, 16, 24])
def test_a_changed_header_is_corrupt(at: int) -> None:
    data = bytearray(ChunkTable(PACKS, CHUNKS).encode())
    data[at] ^= 1
    with pytest.raises(CorruptError):
        ChunkTable.decode(bytes(data))


@given(data=st.data())
def test_a_cut_or_extended_table_is_corrupt(data: st.DataObject) -> None:
    encoded = ChunkTable(PACKS, CHUNKS).encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for bad in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(CorruptError):
            ChunkTable.decode(bad)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_table_or_corrupt(data: bytes) -> None:
    encoded = ChunkTable(PACKS, CHUNKS).encode()
    spliced = encoded[: len(data)] + data + encoded[2 * len(data) :]
    for candidate in (data, spliced):
        with contextlib.suppress(CorruptError):
            assert ChunkTable.decode(candidate).encode() == candidate
