from __future__ import annotations

from typing import NamedTuple

from dsec_layers.chunks.device import DeviceLayout, padded


class Placement(NamedTuple):
    file_offset: int
    device_offset: int
    length: int


def test_contents_follow_one_another_at_block_boundaries() -> None:
    device = DeviceLayout(Placement)
    assert device.place(b"a", [(0, 1)]) == (Placement(0, 0, 4096),)
    assert device.place(b"b", [(0, 4097)]) == (Placement(0, 4096, 8192),)
    assert device.size_bytes == 12288


def test_holes_take_no_space() -> None:
    device = DeviceLayout(Placement)
    placed = device.place(b"a", [(8192, 4096), (40960, 5)])
    assert placed == (Placement(8192, 0, 4096), Placement(40960, 4096, 4096))
    assert device.place(b"hole", []) == ()
    assert device.size_bytes == 8192


def test_a_content_is_found_where_it_was_placed() -> None:
    device = DeviceLayout(Placement)
    assert device.find(b"a") is None
    placed = device.place(b"a", [(0, 10)])
    assert device.find(b"a") == placed


def test_padding_goes_to_whole_blocks() -> None:
    assert [padded(length) for length in (0, 1, 4096, 4097)] == [0, 4096, 4096, 8192]
