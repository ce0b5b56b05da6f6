import pytest

from dsec_layers.erofs.xattrs import body_size, body_units, decode_xattrs, encode_xattrs
from dsec_layers.errors import CorruptError, InvalidInputError

ALL = (
    (b"security.capability", b"\1\0\0\2"),
    (b"system.posix_acl_access", b"\2\0\0\0"),
    (b"system.posix_acl_default", b""),
    (b"trusted.x", b"v" * 65535),
    (b"user.\xff\n", b""),
)


def test_xattrs_come_back() -> None:
    body = encode_xattrs(ALL, b"p")
    assert len(body) % 4 == 0
    assert body_size(body_units(len(body))) == len(body)
    assert decode_xattrs(body) == ALL
    assert encode_xattrs((), b"p") == b""
    assert body_size(body_units(0)) == 0


def test_an_entry_is_lengths_prefix_name_value_and_padding() -> None:
    body = encode_xattrs([(b"user.ab", b"xyz")], b"p")
    assert body == bytes(12) + b"\x02\x01\x03\x00" + b"ab" + b"xyz" + bytes(3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"system.nfs4_acl", b""),
        (b"system.posix_acl_accessory", b""),
        (b"other.a", b""),
        (b"user.", b""),
        (b"user." + b"n" * 251, b""),
        (b"user.a", bytes(65536)),
    ],
)
def test_what_the_format_cannot_hold_is_refused_by_name(name: bytes, value: bytes) -> None:
    with pytest.raises(InvalidInputError, match="some/path"):
        encode_xattrs([(name, value)], b"some/path")


def test_the_sum_of_xattrs_is_limited() -> None:
    four = [(b"user.%d" % number, bytes(65500)) for number in range(4)]
    assert len(encode_xattrs(four, b"p")) > 262000
    with pytest.raises(InvalidInputError, match="in all"):
        encode_xattrs([*four, (b"user.b", bytes(100))], b"p")


@pytest.mark.parametrize(
    "body",
    [
        bytes(4) + b"\x01" + bytes(7),  # shared xattrs
        bytes(12) + b"\x01\x07\0\0a\0\0\0",  # prefix 7
        bytes(12) + b"\x05\x01\0\0ab\0\0",
        bytes(12) + b"\x01\x01\xff\xffa\0\0\0",
        bytes(12) + b"\x01\x01\0\0a\0\0\0" * 2,  # twice
        bytes(12) + b"\x01\x01\0\0\0\0\0\0",  # a zero byte
    ],
)
def test_bad_bodies_are_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptError):
        decode_xattrs(body)
