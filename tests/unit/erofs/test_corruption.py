"""No bytes make the reader do anything but read or raise CorruptError."""

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dsec_layers.erofs import layout
from dsec_layers.erofs.planning import Extent
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import CorruptError
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import write

FILE = Entry(path=b"f", kind=EntryKind.FILE, mode=0o644, size=5 * 4096)
DIRECTORY = Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755)
TREE = Tree.of(
    [
        DIRECTORY,
        replace(DIRECTORY, path=b"d/e", opaque=True, xattrs=((b"user.a", b"b"),)),
        *(replace(FILE, path=b"d/e/%03d" % n + b"n" * 200) for n in range(40)),
        FILE,
        Entry(path=b"d/w", kind=EntryKind.WHITEOUT),
        Entry(path=b"d/n", kind=EntryKind.CHAR, xattrs=((b"trusted.overlay.x", b"y"),)),
        Entry(path=b"d/b", kind=EntryKind.BLOCK, major=8, minor=300, link_group=1),
        Entry(path=b"d/c", kind=EntryKind.BLOCK, major=8, minor=300, link_group=1),
        Entry(path=b"l", kind=EntryKind.SYMLINK, target=b"d/e"),
        Entry(path=b"long", kind=EntryKind.SYMLINK, target=b"t" * 4090),
    ]
)
EXTENTS = {b"f": [Extent(0, 0, 4096), Extent(3 * 4096, 4096, 8192)]}
IMAGE = write(TREE, EXTENTS, 3)
SUPER = layout.SUPER_OFFSET


def read_all(data: bytes) -> None:
    """Use every method on every path that the walk finds."""
    image = ErofsImage(data)
    for entry in image.walk():
        image.stat(entry.path)
        if entry.kind is EntryKind.FILE:
            image.extents(entry.path)


def sealed(data: bytes) -> bytes:
    """The image with a right checksum, as one made by an enemy has."""
    checksum = layout.super_checksum(data[:4096]).to_bytes(4, "little")
    return data[: SUPER + 4] + checksum + data[SUPER + 8 :]


def edited(offset: int, value: bytes) -> bytes:
    return sealed(IMAGE[:offset] + value + IMAGE[offset + len(value) :])


def inode_at(path: bytes) -> int:
    return ErofsImage(IMAGE).lookup(path).nid * layout.SLOT_SIZE


def record_of(directory: bytes, name: bytes) -> int:
    """Where the record of `name` lies, of a directory behind its inode."""
    inode = ErofsImage(IMAGE).lookup(directory)
    names = sorted([b".", b"..", *(n for n, _, _ in ErofsImage(IMAGE).read_directory(inode))])
    return inode.data_offset + layout.DIRENT.size * names.index(name)


def test_the_undamaged_image_is_read() -> None:
    read_all(IMAGE)
    assert tuple(ErofsImage(IMAGE).walk()) == TREE.entries


@given(
    st.lists(st.tuples(st.integers(0, len(IMAGE) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    data = bytearray(IMAGE)
    for position, value in changes:
        data[position] = value
    for image in (bytes(data), sealed(bytes(data))):
        try_to_read(image)


def test_each_byte_inverted() -> None:
    entries = [entry for entry in TREE if len(entry.path) < 100 and len(entry.target) < 100]
    image = write(Tree.of(entries), EXTENTS, 3)
    for position in range(SUPER, len(image)):
        if image[position] or image[position - 1]:
            data = bytearray(image)
            data[position] ^= 0xFF
            try_to_read(sealed(bytes(data)))


@given(st.integers(0, len(IMAGE) - 1))
def test_truncation(length: int) -> None:
    with pytest.raises(CorruptError):
        ErofsImage(IMAGE[:length])


@given(st.integers(2, len(IMAGE) // 4096 - 1))
def test_truncation_with_a_superblock_that_agrees(blocks: int) -> None:
    data = IMAGE[: blocks * 4096]
    try_to_read(sealed(data[: SUPER + 36] + struct.pack("<I", blocks) + data[SUPER + 40 :]))


@given(st.binary(max_size=9000))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(CorruptError):
        read_all(data)
    try_to_read(sealed(IMAGE[:4096] + data.ljust(len(IMAGE) - 4096, b"\0")))


def try_to_read(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        read_all(data)


def test_a_flipped_bit_in_block_0_is_found_by_its_checksum() -> None:
    data = bytearray(IMAGE)
    data[SUPER + 130] ^= 1
    with pytest.raises(CorruptError, match="superblock"):
        ErofsImage(bytes(data))


def nid(path: bytes) -> bytes:
    return struct.pack("<Q", ErofsImage(IMAGE).lookup(path).nid)


DAMAGES: dict[str, Callable[[], bytes]] = {
    "a directory in itself": lambda: edited(record_of(b"d", b"e"), nid(b"d")),
    "a directory in its child": lambda: edited(record_of(b"d", b"e"), nid(b"")),
    "a directory of another parent": lambda: edited(record_of(b"d", b".."), nid(b"d/e")),
    "a directory that is not itself": lambda: edited(record_of(b"d", b"."), nid(b"")),
    "a type that differs": lambda: edited(record_of(b"d", b"w"), nid(b"f")),
    "an unknown type": lambda: edited(record_of(b"d", b"w") + 10, b"\x09"),
    "more names than links": lambda: edited(record_of(b"d", b"w"), nid(b"d/b")),
    "fewer names than links": lambda: edited(inode_at(b"l") + 44, b"\x02"),
    "a name out of order": lambda: edited(inode_at(b"d") + 64 + 7 * 12 + 3, b"z"),
    "an inode number out of range": lambda: edited(record_of(b"d", b"w"), b"\xff" * 8),
    "a compact inode": lambda: edited(inode_at(b"f"), b"\x08"),
    "a compressed file": lambda: edited(inode_at(b"f"), b"\x03"),
    "a format bit from the future": lambda: edited(inode_at(b"f") + 1, b"\x01"),
    "no type": lambda: edited(inode_at(b"f") + 4, b"\0\0"),
    "a billion nanoseconds": lambda: edited(inode_at(b"f") + 40, struct.pack("<I", 10**9)),
    "a time beyond 64 bits": lambda: edited(inode_at(b"f") + 32, b"\xff" * 7 + b"\x7f"),
    "an endless file": lambda: edited(inode_at(b"f") + 8, b"\xff" * 7 + b"\x7f"),
    "an endless directory": lambda: edited(inode_at(b"d") + 8, b"\xff" * 7 + b"\x7f"),
    "an endless target": lambda: edited(inode_at(b"l") + 8, b"\xff" * 8),
    "a target with a zero byte": lambda: edited(inode_at(b"l") + 64, b"\0"),
    "another chunk format": lambda: edited(inode_at(b"f") + 16, b"\x00"),
    "a chunk of another device": lambda: edited(inode_at(b"f") + 64 + 2, b"\x02"),
    "a chunk behind the device": lambda: edited(inode_at(b"f") + 64 + 4, b"\x03"),
    "a mark of overlayfs": lambda: edited(inode_at(b"d/n") + 64 + 16, b"overlay.metacopy"),
    "too many inodes": lambda: edited(SUPER + 16, b"\xff"),
    "another block size": lambda: edited(SUPER + 12, b"\x0d"),
    "a feature from the future": lambda: edited(SUPER + 81, b"\x01"),
    "two devices": lambda: edited(SUPER + 86, b"\x02"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_by_hand(damage: str) -> None:
    data = DAMAGES[damage]()
    assert data != IMAGE
    with pytest.raises(CorruptError):
        read_all(data)
