from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import blake3
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.chunks.constants import MAX_CHUNK_BYTES
from dsec_layers.chunks.frame import chunk_digest, decode_chunk, encode_chunk
from dsec_layers.chunks.pack import PackWriter, read_chunk, read_index
from dsec_layers.errors import CorruptError

PLAIN = [b"text " * 2000, bytes(range(256)), b"\0" * 4096]


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: data[offset : offset + length]


def write_pack(path: Path) -> bytes:
    writer = PackWriter(path)
    for plain in PLAIN:
        writer.append(chunk_digest(plain), len(plain), encode_chunk(plain))
    blob = writer.finish()
    data = path.read_bytes()
    assert blob.size == len(data)
    assert blob.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    return data


def test_a_pack_is_read_without_a_table(tmp_path: Path) -> None:
    data = write_pack(tmp_path / "pack")
    chunks = read_index(reader(data), len(data))
    assert [read_chunk(reader(data), chunk) for chunk in chunks] == PLAIN
    assert [chunk.digest for chunk in chunks] == [blake3.blake3(plain).digest() for plain in PLAIN]


def test_the_encoding_is_the_documented_one(tmp_path: Path) -> None:
    data = write_pack(tmp_path / "pack")
    stored = [encode_chunk(plain) for plain in PLAIN]
    index = b"".join(
        struct.pack("<II", len(frame), len(plain)) + chunk_digest(plain)
        for frame, plain in zip(stored, PLAIN, strict=True)
    )
    head = b"DSECPACK" + struct.pack("<I", 1) + b"".join(stored)
    foot = blake3.blake3(index).digest() + struct.pack("<QI", len(head), 3) + b"DSECPEND"
    assert data == head + index + foot


def test_append_tells_where_a_chunk_lies(tmp_path: Path) -> None:
    writer = PackWriter(tmp_path / "pack")
    assert writer.append(b"d" * 32, 10, b"0123456789") == 12
    assert writer.append(b"e" * 32, 10, b"0123456789") == 22
    writer.abandon()
    assert not (tmp_path / "pack").exists()


def test_a_chunk_that_does_not_compress_is_stored_plain() -> None:
    plain = hashlib.shake_128(b"x").digest(5000)
    assert encode_chunk(plain) == plain
    assert len(encode_chunk(bytes(5000))) < 100


@given(data=st.data())
def test_a_flipped_bit_is_never_served(data: st.DataObject) -> None:
    plain = data.draw(st.sampled_from(PLAIN))
    stored = bytearray(encode_chunk(plain))
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(CorruptError):
        # Some bits of a frame have no meaning; what counts is that no other bytes come out.
        assert decode_chunk(bytes(stored), len(plain), chunk_digest(plain)) == plain


@given(data=st.data())
def test_a_damaged_index_or_footer_is_corrupt(data: st.DataObject, whole_pack: bytes) -> None:
    start = len(whole_pack) - 52 - 3 * 40
    at = data.draw(st.one_of(st.integers(0, 11), st.integers(start, len(whole_pack) - 1)))
    damaged = bytearray(whole_pack)
    damaged[at] ^= 0x40
    with pytest.raises(CorruptError):
        read_index(reader(bytes(damaged)), len(damaged))


@given(data=st.data())
def test_a_cut_pack_is_corrupt(data: st.DataObject, whole_pack: bytes) -> None:
    cut = data.draw(st.integers(0, len(whole_pack) - 1))
    with pytest.raises(CorruptError):
        read_index(reader(whole_pack[:cut]), cut)


@pytest.fixture(scope="module")
def whole_pack(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_pack(tmp_path_factory.mktemp("pack") / "pack")


def test_an_index_with_impossible_lengths_is_corrupt() -> None:
    for stored, plain in ((0, 5), (6, 5), (5, MAX_CHUNK_BYTES + 1)):
        index = struct.pack("<II", stored, plain) + bytes(32)
        head = b"DSECPACK" + struct.pack("<I", 1) + b"x" * stored
        foot = blake3.blake3(index).digest() + struct.pack("<QI", len(head), 1) + b"DSECPEND"
        data = head + index + foot
        with pytest.raises(CorruptError, match="impossible"):
            read_index(reader(data), len(data))


def test_chunks_that_do_not_fill_the_pack_are_corrupt() -> None:
    index = struct.pack("<II", 5, 5) + bytes(32)
    head = b"DSECPACK" + struct.pack("<I", 1) + b"x" * 6
    foot = blake3.blake3(index).digest() + struct.pack("<QI", len(head), 1) + b"DSECPEND"
    data = head + index + foot
    with pytest.raises(CorruptError, match="do not end"):
        read_index(reader(data), len(data))


def test_a_frame_that_claims_another_size_is_not_decompressed() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    with pytest.raises(CorruptError, match="stored as a frame of 268435456"):
        decode_chunk(bomb, 1 << 20, bytes(32))


def test_bytes_after_a_frame_are_corrupt() -> None:
    plain = b"text " * 2000
    with pytest.raises(CorruptError):
        decode_chunk(encode_chunk(plain) + b"x", len(plain), chunk_digest(plain))
