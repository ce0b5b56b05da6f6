from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.erofs.planning import Extent
from dsec_layers.errors import CorruptError, DsecError
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.treefiles import Plain, TreeFiles, pieces
from dsec_layers.lazyfs.treenodes import Node
from dsec_layers.model.tree import Entry, EntryKind
from tests.support.lazy import BLOCK, Rig, device_bytes

BLOCKS = 16


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.fetcher.close()


def node(size: int, path: bytes = b"file") -> Node:
    return Node(2, 0, Entry(path=path, kind=EntryKind.FILE, size=size), 1, 1)


def read(files: TreeFiles, wanted: Node, offset: int, length: int) -> bytes:
    """The bytes, or the error raised."""
    done = threading.Event()
    got: list[tuple[Sequence[Plain], BaseException | None]] = []

    def finished(parts: Sequence[Plain], error: BaseException | None) -> None:
        got.append((parts, error))
        done.set()

    files.start_read(wanted, offset, length, finished)
    assert done.wait(60)
    [(parts, error)] = got
    if error is not None:
        assert not parts
        raise error
    return b"".join(parts)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, list[Extent]]:
    """A file size and its extents on a device of BLOCKS blocks."""
    extents: list[Extent] = []
    at = 0
    for _ in range(draw(st.integers(0, 4))):
        at += draw(st.integers(0, 2)) * BLOCK
        count = draw(st.integers(1, 3))
        start = draw(st.integers(0, BLOCKS - count))
        extents.append(Extent(at, start * BLOCK, count * BLOCK))
        at += count * BLOCK
    size = at + draw(st.integers(0, BLOCK))
    if extents and size == at and draw(st.booleans()):  # the last ends inside of a block
        cut = draw(st.integers(0, BLOCK - 1))
        last = extents.pop()
        extents.append(Extent(last.file_offset, last.device_offset, last.length - cut))
        size -= cut
    return size, extents


@given(layout=layouts(), offset=st.integers(0, 16 * BLOCK), length=st.integers(0, 16 * BLOCK))
def test_any_range_of_any_file(layout: tuple[int, list[Extent]], offset: int, length: int) -> None:
    size, extents = layout
    device = device_bytes(BLOCKS)
    whole = bytearray(size)
    for extent in extents:
        data = device[extent.device_offset : extent.device_offset + extent.length]
        whole[extent.file_offset : extent.file_offset + extent.length] = data
    end = min(offset + length, size)
    found = b"".join(
        bytes(count) if start is None else device[start : start + count]
        for start, count in pieces(extents, offset, end)
    )
    assert found == whole[offset:end]


def test_pieces_of_several_chunks_and_holes(rig: Rig) -> None:
    data = device_bytes(BLOCKS)
    extents = [Extent(BLOCK, 5 * BLOCK, 3 * BLOCK), Extent(6 * BLOCK, 0, 2 * BLOCK)]
    files = TreeFiles([rig.device(data, cycle([BLOCK, 2 * BLOCK]))], lambda layer, path: extents)
    whole = bytes(BLOCK) + data[5 * BLOCK : 8 * BLOCK] + bytes(2 * BLOCK) + data[: 2 * BLOCK]
    whole += bytes(100)
    file = node(len(whole))
    for offset, length in ((0, 1 << 20), (1, 5 * BLOCK), (7 * BLOCK, BLOCK), (len(whole) - 9, 99)):
        assert read(files, file, offset, length) == whole[offset : offset + length]
    assert read(files, file, len(whole), 100) == b""
    assert read(files, file, len(whole) + 5 * BLOCK, 100) == b""


def test_one_missing_chunk_fails_all_of_a_read(rig: Rig) -> None:
    data = device_bytes(4)
    device = rig.device(data, cycle([BLOCK]), chunks_per_pack=1)
    del rig.blobs.blobs[device.layer.packs[2].digest]
    extents = [Extent(0, 0, 4 * BLOCK)]
    files = TreeFiles([device], lambda layer, path: extents)
    with pytest.raises(DsecError):
        read(files, node(4 * BLOCK), 0, 4 * BLOCK)
    assert read(files, node(4 * BLOCK), 0, 2 * BLOCK) == data[: 2 * BLOCK]


def test_less_than_the_metadata_says_is_an_error(rig: Rig) -> None:
    device: LayerDevice = rig.device(device_bytes(2), cycle([BLOCK]))
    files = TreeFiles([device], lambda layer, path: [Extent(0, BLOCK, 3 * BLOCK)])
    with pytest.raises(CorruptError, match="leaves its device"):
        read(files, node(3 * BLOCK), 0, 3 * BLOCK)


def test_metadata_that_cannot_be_read_is_an_error(rig: Rig) -> None:
    def locate(layer: int, path: bytes) -> Sequence[Extent]:
        raise CorruptError("no such inode")

    files = TreeFiles([rig.device(device_bytes(1), [BLOCK])], locate)
    with pytest.raises(CorruptError):
        read(files, node(BLOCK), 0, BLOCK)
    assert read(files, node(0), 0, BLOCK) == b""
