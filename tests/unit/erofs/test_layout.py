import struct

import pytest

from dsec_layers.erofs import layout


def test_structures_have_the_sizes_of_the_format() -> None:
    structures = (layout.SUPER, layout.DEVICE, layout.INODE, layout.DIRENT, layout.INDEX)
    assert [structure.size for structure in structures] == [128, 128, 64, 12, 8]


def test_the_checksum_is_crc32c_without_its_own_field() -> None:
    assert layout.crc32c(b"123456789") == 0xE3069283 ^ 0xFFFFFFFF
    block = bytearray(bytes(range(256)) * 16)
    before = layout.super_checksum(bytes(block))
    block[layout.SUPER_OFFSET + 4 : layout.SUPER_OFFSET + 8] = b"any."
    block[: layout.SUPER_OFFSET] = bytes(layout.SUPER_OFFSET)
    assert layout.super_checksum(bytes(block)) == before
    block[-1] ^= 1
    assert layout.super_checksum(bytes(block)) != before


@pytest.mark.parametrize(("major", "minor"), [(0, 0), (1, 3), (259, 2**20 - 1), (4095, 256)])
def test_device_numbers_come_back(major: int, minor: int) -> None:
    number = layout.encode_device_number(major, minor)
    assert number == struct.unpack("<I", struct.pack("<I", number))[0]
    assert layout.decode_device_number(number) == (major, minor)


@pytest.mark.parametrize(("major", "minor"), [(4096, 0), (0, 2**20), (-1, 0)])
def test_device_numbers_that_do_not_fit_are_refused(major: int, minor: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        layout.encode_device_number(major, minor)
