"""The EROFS on-disk structures of our images; docs/formats/erofs.md describes them to the byte.

The format is the kernel's (Documentation/filesystems/erofs.rst). All integers are little-endian.
An image holds metadata only: file contents lie on one extra device, named by device id 1.
"""

from __future__ import annotations

import stat
from struct import Struct
from typing import Final

from dsec_layers.model.tree import EntryKind

BLOCK_BITS: Final = 12
BLOCK_SIZE: Final = 1 << BLOCK_BITS
SLOT_SIZE: Final = 32  # an inode number counts units of this many bytes from the start of the image

SUPER_OFFSET: Final = 1024
SUPER_MAGIC: Final = 0xE0F5E1E2
FEATURE_CHECKSUM: Final = 1  # compatible features: the superblock has a checksum
FEATURE_MTIME: Final = 2  # inodes carry modification times
FEATURE_CHUNKED: Final = 4  # incompatible features: files made of chunks
FEATURE_DEVICES: Final = 8  # a device table
DEVICE_SLOT_SIZE: Final = 128
DEVICE_SLOT: Final = 9  # the device table starts behind the superblock, at 9 * 128 bytes
DEVICE_ID: Final = 1

# magic, checksum, compatible features, log2 of the block size, extension slots, root inode;
# inodes, epoch (seconds, nanoseconds), blocks, block of the inodes, block of shared xattrs;
# uuid, name; incompatible features, compression, extra devices, slot of the device table; rest
SUPER: Final = Struct("<IIIBBHQQIIII16s16sIHHH38x")
DEVICE: Final = Struct("<64sII56x")  # tag, blocks, first block in a flat view (unused: 0)

# format, xattr units, mode, reserved; size, data field, number, uid, gid;
# mtime (seconds, nanoseconds), links; reserved
INODE: Final = Struct("<HHHHQIIIIqII16x")
INODE_EXTENDED: Final = 1  # bit 0 of the format; the data layout is in bits 1 to 3
LAYOUT_PLAIN: Final = 0
LAYOUT_INLINE: Final = 2
LAYOUT_CHUNKED: Final = 4
CHUNK_INDEXES: Final = (
    0x20  # chunk format flag: entries are indexes of 8 bytes; the low 5 bits are log2 of blocks
)
INDEX: Final = Struct("<HHI")  # reserved, device id, first block; all three 0, 0, HOLE for a hole
HOLE: Final = 0xFFFFFFFF
MAX_DEVICE_BLOCKS: Final = 0xFFFFFFFF  # 16 TiB less a block, which would be a hole's number

DIRENT: Final = Struct("<QHBB")  # inode, offset of the name in its block, file type, reserved
NO_ID: Final = 0xFFFFFFFF  # as owner or group it means none to the kernel, and is shown as another
MAX_FILE_BYTES: Final = (1 << 63) - 1
MAX_PATH_BYTES: Final = 4095
MAX_TARGET_BYTES: Final = 4095

XATTR_HEADER_SIZE: Final = 12
XATTR: Final = Struct(
    "<BBH"
)  # length of the name without its prefix, prefix number, length of the value
# Longest first, as the two access lists are whole names.
XATTR_PREFIXES: Final = (
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"user.", 1),
    (b"trusted.", 4),
    (b"security.", 6),
)

# By EntryKind in stored form; whiteouts are character devices there. Index 0 is unused.
MODE_TYPES: Final = (
    0,
    stat.S_IFDIR,
    stat.S_IFREG,
    stat.S_IFLNK,
    stat.S_IFCHR,
    stat.S_IFBLK,
    stat.S_IFIFO,
    stat.S_IFSOCK,
)
DIRENT_TYPES: Final = (0, 2, 1, 7, 3, 4, 5, 6)
KINDS_BY_MODE: Final = {bits: EntryKind(number) for number, bits in enumerate(MODE_TYPES) if number}


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC32C: Final = _crc32c_table()


def crc32c(data: bytes) -> int:
    """The crc32c register after `data`: it starts with all ones and is not inverted at the end."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc


def super_checksum(block: bytes) -> int:
    """The checksum of block 0: from the superblock to the end, with its checksum field as zero."""
    checksum = SUPER_OFFSET + 4
    return crc32c(block[SUPER_OFFSET:checksum] + bytes(4) + block[checksum + 4 : BLOCK_SIZE])


def encode_device_number(major: int, minor: int) -> int:
    """The kernel's 32-bit device number: 12 bits of major, 20 of minor. Raises ValueError."""
    if not (0 <= major < 1 << 12 and 0 <= minor < 1 << 20):
        raise ValueError(f"device number {major}:{minor} does not fit into 12 and 20 bits")
    return minor & 0xFF | major << 8 | (minor & ~0xFF) << 12


def decode_device_number(number: int) -> tuple[int, int]:
    """Major and minor of the kernel's 32-bit device number."""
    return number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00


def round_up(value: int, unit: int) -> int:
    """`value` rounded up to a multiple of `unit`, a power of two."""
    return value + unit - 1 & -unit
