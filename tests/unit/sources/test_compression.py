import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable

import pytest
import zstandard

from dsec_layers.errors import CorruptError
from dsec_layers.sources.compression import is_compressed, plain

DATA = random.Random(1).randbytes(300_000) + bytes(200_000) + b"the end"
FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}


def unpacked(data: bytes) -> bytes:
    return plain(io.BytesIO(data), name="it").read()


class Drip(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 1))


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_found_by_its_first_bytes(name: str) -> None:
    packed = FORMATS[name](DATA)
    assert is_compressed(packed[:6])
    assert unpacked(packed) == DATA


@pytest.mark.parametrize("name", FORMATS)
def test_frames_one_after_another_are_one_stream(name: str) -> None:
    pack = FORMATS[name]
    assert unpacked(pack(DATA[:7]) + pack(b"") + pack(DATA[7:])) == DATA


@pytest.mark.parametrize("data", [DATA, b"", b"x", b"\x1f", b"\x1fabcdefg"])
def test_anything_else_is_plain(data: bytes) -> None:
    assert not is_compressed(data[:6])
    assert unpacked(data) == data


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_that_drips_is_read_to_its_end(name: str) -> None:
    packed = FORMATS[name](b"abc" * 100)
    assert plain(Drip(packed), name="it").read() == b"abc" * 100


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("left", [0.0, 0.5, 0.999])
def test_a_stream_cut_short_is_corrupt(name: str, left: float) -> None:
    packed = FORMATS[name](DATA)
    with pytest.raises(CorruptError, match="it: "):
        unpacked(packed[: 8 + int((len(packed) - 8) * left)])


@pytest.mark.parametrize("name", ["gzip", "xz", "bzip2"])
def test_a_flipped_bit_is_corrupt(name: str) -> None:
    packed = bytearray(FORMATS[name](DATA))
    packed[len(packed) // 2] ^= 1
    with pytest.raises(CorruptError):
        unpacked(bytes(packed))


def test_a_zstd_checksum_is_checked() -> None:
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(DATA))
    packed[len(packed) // 2] ^= 1
    with pytest.raises(CorruptError):
        unpacked(bytes(packed))


def test_padding_after_gzip_is_no_data_and_garbage_is_corrupt() -> None:
    assert unpacked(gzip.compress(DATA) + bytes(100_000)) == DATA
    with pytest.raises(CorruptError):
        unpacked(gzip.compress(DATA) + b"garbage")


def test_a_skippable_zstd_frame_may_come_first() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    assert unpacked(skippable + zstandard.compress(DATA)) == DATA


def test_a_window_of_128_mib_is_accepted() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(DATA) + compressor.flush()
    assert unpacked(data) == DATA


def test_dense_data_is_read_piece_by_piece() -> None:
    """A gigabyte of zeros in a few kilobytes must not become a gigabyte of memory at once."""
    compressor = zstandard.ZstdCompressor().compressobj()
    pieces = [compressor.compress(bytes(1 << 20)) for _ in range(512)]
    stream = plain(io.BytesIO(b"".join(pieces) + compressor.flush()), name="it")
    total = 0
    while piece := stream.read1(1 << 20):
        assert len(piece) <= 1 << 20
        total += len(piece)
    assert total == 512 << 20
