from __future__ import annotations

import errno
import stat
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.linux import fuse, fusenodes
from dsec_layers.linux.fusenodes import NodeAttributes

ENTRY_OUT, ATTRIBUTES_OUT = 128, 104  # sizes in the kernel's fuse.h, protocol 7.38


def attributes(node: int) -> NodeAttributes:
    return NodeAttributes(
        node=node,
        mode=stat.S_IFBLK | 0o640,
        links=3,
        uid=1,
        gid=2**32 - 2,
        size=1000,
        mtime_ns=-1,
        major=259,
        minor=70000,
    )


def test_attributes() -> None:
    encoded = attributes(7).encode()
    fields = struct.unpack("<QQQQQQIIIIIIIIII", encoded)
    assert fields[:3] == (7, 1000, 2)
    assert fields[3:6] == (2**64 - 1,) * 3  # a second before 1970, as the kernel's signed seconds
    assert fields[6:9] == (999_999_999,) * 3
    mode, links, uid, gid, device = fields[9:14]
    assert (mode, links, uid, gid) == (stat.S_IFBLK | 0o640, 3, 1, 2**32 - 2)
    # the kernel's new_decode_dev
    assert (device & 0xFFF00) >> 8 == 259
    assert (device & 0xFF) | (device >> 12 & 0xFFF00) == 70000


def test_entries() -> None:
    found, absent = fusenodes.encode_entry(attributes(7)), fusenodes.encode_entry(None)
    assert len(found) == len(absent) == ENTRY_OUT
    node, _, names_s, attributes_s = struct.unpack_from("<QQQQ", found)
    assert (node, names_s, attributes_s) == (7, fusenodes.VALID_S, fusenodes.VALID_S)
    assert struct.unpack_from("<QQQQ", absent) == (0, 0, fusenodes.VALID_S, 0)
    assert len(fusenodes.encode_attributes(attributes(7))) == ATTRIBUTES_OUT


@given(
    names=st.lists(st.binary(min_size=1, max_size=80), max_size=20),
    size=st.integers(300, 900),
    plus=st.booleans(),
)
def test_a_directory_is_read_in_pieces_of_any_size(
    names: list[bytes], size: int, plus: bool
) -> None:
    listing = [(name, 10 + number, stat.S_IFLNK | 7) for number, name in enumerate(names)]
    head = ENTRY_OUT if plus else 0
    found: list[tuple[int, bytes]] = []
    offset = 0
    while piece := fusenodes.encode_directory(listing, offset, size, attributes if plus else None):
        assert len(piece) <= size
        at = 0
        while at < len(piece):
            node, offset, length, kind = struct.unpack_from("<QQII", piece, at + head)
            assert kind == 10  # DT_LNK
            if plus:
                assert struct.unpack_from("<Q", piece, at) == (node,)
            begin = at + head + 24
            found.append((node, piece[begin : begin + length]))
            at += -(-(head + 24 + length) // 8) * 8
    assert found == [(10 + number, name) for number, name in enumerate(names)]


def test_xattrs() -> None:
    body = memoryview(struct.pack("<II", 5, 0) + b"user.a\0")
    assert fusenodes.decode_xattr_size(body) == 5
    assert fusenodes.decode_xattr_name(body) == b"user.a"
    assert fusenodes.encode_xattr(b"12345", 5) == b"12345"
    assert fusenodes.encode_xattr(b"12345", 0) == struct.pack("<II", 5, 0)
    with pytest.raises(OSError, match="longer") as caught:
        fusenodes.encode_xattr(b"12345", 4)
    assert caught.value.errno == errno.ERANGE


def test_a_tree_is_negotiated_with_its_wishes() -> None:
    everything = struct.pack("<IIIII44x", 7, 45, 1 << 17, 0xFFFFFFFF, 0xFFFFFFFF)
    for wishes in (0, fuse.TREE_WISHES):
        answer = fuse.negotiate(memoryview(everything), wishes)
        assert answer is not None
        flags = struct.unpack_from("<IIII", answer)[3]
        assert flags & fuse.TREE_WISHES == wishes
