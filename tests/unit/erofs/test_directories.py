import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.erofs.directories import Row, cut, decode_block, encode_block
from dsec_layers.errors import CorruptError


def row(name: bytes) -> Row:
    return name, len(name), 1


@given(
    st.sets(
        st.binary(min_size=1, max_size=255).map(lambda n: n.translate(None, b"\0/")), max_size=400
    )
)
def test_blocks_hold_all_rows_in_order(names: set[bytes]) -> None:
    rows = [row(name) for name in sorted(names - {b""})] or [row(b".")]
    blocks = [encode_block(rows[start:end]) for start, end in cut([name for name, _, _ in rows])[0]]
    assert all(len(block) <= 4096 for block in blocks)
    padded = [block + bytes(4096 - len(block)) for block in blocks]
    assert [found for block in padded for found in decode_block(block)] == rows
    assert [found for block in blocks for found in decode_block(block)] == rows


def test_a_block_is_filled_to_the_last_byte() -> None:
    names = [b"%04d" % number for number in range(256)]
    assert cut(names) == ([(0, 256)], 4096)
    assert len(encode_block([row(name) for name in names])) == 4096
    assert cut([*names, b"z"]) == ([(0, 256), (256, 257)], 13)


def test_a_block_is_records_then_names() -> None:
    block = encode_block([(b"ab", 5, 2), (b"c", 1 << 40, 7)])
    assert block == (
        b"\x05\0\0\0\0\0\0\0\x18\0\x02\0" + b"\0\0\0\0\0\x01\0\0\x1a\0\x07\0" + b"ab" + b"c"
    )


@pytest.mark.parametrize(
    "block",
    [
        b"",
        bytes(12),
        bytes(4096),
        b"\0" * 8 + b"\x0d\0\x01\0" + b"a" * 8,  # a name offset between records
        b"\0" * 8 + b"\xff\xff\x01\0" + b"a" * 8,
        b"\0" * 8 + b"\x0c\0\x01\0",  # a name without bytes
        b"\0" * 8 + b"\x0c\0\x01\0" + b"a/b",
        b"\0" * 8 + b"\x0c\0\x01\0" + b"a\0b",
        b"\0" * 8 + b"\x0c\0\x01\0" + b"a" * 256,
    ],
)
def test_bad_blocks_are_corrupt(block: bytes) -> None:
    with pytest.raises(CorruptError):
        list(decode_block(block))
