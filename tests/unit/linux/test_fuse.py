from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.linux import fuse
from dsec_layers.linux.fuse import Attributes

# Sizes of the structures in the kernel's fuse.h, protocol 7.38.
OUT_HEADER, INIT_OUT, ENTRY_OUT, ATTRIBUTES_OUT, OPEN_OUT, STATFS_OUT = 16, 64, 128, 104, 16, 80
INIT_IN = struct.Struct("<IIIII44x")


def test_answers_have_the_sizes_the_kernel_expects() -> None:
    file = Attributes(2, 5 * 4096)
    entry = fuse.encode_entry(file, name_valid_s=1, attributes_valid_s=2)
    assert len(entry) == ENTRY_OUT
    assert len(fuse.encode_attributes(file, valid_s=1)) == ATTRIBUTES_OUT
    assert len(fuse.encode_open()) == OPEN_OUT
    assert len(fuse.encode_statfs(1 << 40, 3)) == STATFS_OUT


def test_negotiation_takes_what_both_sides_know() -> None:
    everything = INIT_IN.pack(7, 45, 1 << 17, 0xFFFFFFFF, 0xFFFFFFFF)
    answer = fuse.negotiate(memoryview(everything))
    assert answer is not None
    assert len(answer) == INIT_OUT
    major, minor, _, flags, background, congestion, write, _, pages, _, flags2 = struct.unpack(
        "<IIIIHHIIHHI28x", answer
    )
    assert (major, minor, write, pages) == (7, 38, 4096, 256)
    assert congestion < background
    assert flags & 1 << 22  # max_pages is set
    assert flags2 == 1 << 7  # nothing but the resending of requests

    old = fuse.negotiate(memoryview(INIT_IN.pack(7, 31, 1 << 17, 1, 0xFFFFFFFF)))
    assert old is not None
    assert struct.unpack_from("<IIII", old)[1::2] == (31, 1)
    assert struct.unpack_from("<I", old, 32)[0] == 0  # flags2 means nothing to this kernel
    assert fuse.negotiate(memoryview(INIT_IN.pack(6, 9, 0, 0, 0))) is None


@given(names=st.lists(st.binary(min_size=1, max_size=80), max_size=20), size=st.integers(120, 900))
def test_a_directory_is_read_in_pieces_of_any_size(names: list[bytes], size: int) -> None:
    entries = [(name, Attributes(10 + number, None)) for number, name in enumerate(names)]
    found: list[tuple[int, bytes]] = []
    offset = 0
    while piece := fuse.encode_directory(entries, offset, size):
        assert len(piece) <= size
        at = 0
        while at < len(piece):
            node, offset, length, kind = struct.unpack_from("<QQII", piece, at)
            assert kind == 4  # DT_DIR
            found.append((node, piece[at + 24 : at + 24 + length]))
            at += -(-(24 + length) // 8) * 8
    assert found == [(10 + number, name) for number, name in enumerate(names)]


def test_replies_are_framed() -> None:
    reader, writer = os.pipe()
    try:
        fuse.reply(writer, 7, (b"ab", memoryview(b"cde")), 5)
        assert os.read(reader, 100) == struct.pack("<IiQ", OUT_HEADER + 5, 0, 7) + b"abcde"
        fuse.reply(writer, 7, [b"x"] * 1500, 1500)
        assert os.read(reader, 4096) == struct.pack("<IiQ", OUT_HEADER + 1500, 0, 7) + b"x" * 1500
        fuse.reply_error(writer, 8, 5)
        assert os.read(reader, 100) == struct.pack("<IiQ", OUT_HEADER, -5, 8)
        fuse.notify_resend(writer)
        assert os.read(reader, 100) == struct.pack("<IiQ", OUT_HEADER, 7, 0)
    finally:
        os.close(reader)
        os.close(writer)


def test_requests_are_taken_apart() -> None:
    reader, writer = os.pipe()
    try:
        body = struct.pack("<QQIIQII", 0, 8192, 4096, 0, 0, 0, 0)
        os.write(writer, struct.pack("<IIQQIIIHH", 80, 15, 99, 2, 0, 0, 0, 0, 0) + body)
        request = fuse.RequestBuffer().read(reader)
        assert request is not None
        assert (request.opcode, request.unique, request.node) == (fuse.Opcode.READ, 99, 2)
        assert fuse.decode_read(request.body) == (8192, 4096)
        assert fuse.decode_name(memoryview(b"name\0rest")) == b"name"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("size", [None, 0, 4096, 1 << 45])
def test_attributes(size: int | None) -> None:
    encoded = Attributes(3, size).encode()
    assert len(encoded) == 88
    node, bytes_, blocks = struct.unpack_from("<QQQ", encoded)
    mode, links = struct.unpack_from("<II", encoded, 60)
    assert (node, bytes_, blocks) == (3, size or 0, (size or 0) // 512)
    assert (mode, links) == ((0o040555, 2) if size is None else (0o100444, 1))
