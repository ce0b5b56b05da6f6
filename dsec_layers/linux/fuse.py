"""FUSE spoken over /dev/fuse directly: structures, mounting, reading requests, writing replies.

Layouts and numbers are those of the kernel's `include/uapi/linux/fuse.h` (protocol 7.38),
little-endian, for a read-only file system. All functions raise OSError with the kernel's number.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from dsec_layers.linux import syscalls

Buffer = bytes | bytearray | memoryview

ROOT_NODE: Final = 1
MAX_REQUEST_BYTES: Final = 1 << 20
MAX_PAGES: Final = MAX_REQUEST_BYTES // 4096
_MINOR: Final = 38
_REQUEST_BUFFER_BYTES: Final = (
    8192  # the least the kernel accepts; enough because max_write is one page
)
_MAX_BACKGROUND: Final = 256
_MAX_PARTS: Final = 1000  # writev takes 1,024

_ASYNC_READ: Final = 1 << 0
_ASYNC_DIRECT_IO: Final = 1 << 15
_PARALLEL_LOOKUP: Final = 1 << 18
_MAX_PAGES_SET: Final = 1 << 22
_EXTENDED_INIT: Final = 1 << 30
_HAS_RESEND: Final = 1 << 39
_WANTED: Final = (
    _ASYNC_READ
    | _ASYNC_DIRECT_IO
    | _PARALLEL_LOOKUP
    | _MAX_PAGES_SET
    | _EXTENDED_INIT
    | _HAS_RESEND
)

# Attributes with the names of a directory where the kernel expects use for them; link targets kept.
TREE_WISHES: Final = 1 << 13 | 1 << 14 | 1 << 23

_KEEP_CACHE: Final = 1 << 1
_NO_FLUSH: Final = 1 << 5
_NOTIFY_RESEND: Final = 7

_HEADER: Final = struct.Struct(
    "<IIQQIIIHH"
)  # len, opcode, unique, node, uid, gid, pid, extension length, padding
_REPLY: Final = struct.Struct("<IiQ")  # len, error, unique
_INIT_IN: Final = struct.Struct("<IIII")  # major, minor, max_readahead, flags
_INIT_OUT: Final = struct.Struct(
    "<IIIIHHIIHHI28x"
)  # ..., background, congestion, write, grain, pages, align, flags2
_ATTRIBUTES: Final = struct.Struct(
    "<QQQQQQIIIIIIIIII"
)  # ino, size, blocks, 3 times, 3 ns, mode, nlink, ids, rdev, ...
_ENTRY: Final = struct.Struct(
    "<QQQQII"
)  # node, generation, name valid s, attributes valid s, both again in ns
_ATTRIBUTES_VALID: Final = struct.Struct("<QII")
_OPEN: Final = struct.Struct("<QII")  # handle, flags, padding
_READ: Final = struct.Struct("<QQI")  # handle, offset, size
_DIRECTORY_ENTRY: Final = struct.Struct("<QQII")  # ino, offset of the next, name length, type
_STATFS: Final = struct.Struct(
    "<QQQQQIII28x"
)  # blocks, free, available, files, free files, block, name, fragment


class Opcode(IntEnum):
    """The requests that a read-only file system meets."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    READLINK = 5
    OPEN = 14
    READ = 15
    STATFS = 17
    RELEASE = 18
    GETXATTR = 22
    LISTXATTR = 23
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    READDIRPLUS = 44


class Request(NamedTuple):
    """One request. `body` is valid until the buffer it was read into is used again."""

    opcode: int
    unique: int
    node: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class Attributes:
    """What stat shows of a node: a read-only file of `size` bytes, or a directory without one."""

    node: int
    size: int | None

    def encode(self) -> bytes:
        """The `fuse_attr` structure."""
        mode = stat.S_IFREG | 0o444 if self.size is not None else stat.S_IFDIR | 0o555
        size = self.size or 0
        return _ATTRIBUTES.pack(
            self.node,
            size,
            -(-size // 512),
            0,
            0,
            0,
            0,
            0,
            0,
            mode,
            1 if self.size is not None else 2,
            0,
            0,
            0,
            4096,
            0,
        )


def mount(fd: int, target: Path, source: str) -> None:
    """Mount the connection `fd` read-only for all users; does not wait for its server."""
    options = (
        f"fd={fd},rootmode=40555,user_id=0,group_id=0,allow_other,max_read={MAX_REQUEST_BYTES}"
    )
    flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount(source, str(target), "fuse", flags, options)


def set_read_ahead(device: str, kib: int) -> None:
    """Set the read-ahead of the mount whose `major:minor` is `device` (`MountPoint.device`)."""
    Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(kib))


class RequestBuffer:
    """Where one thread reads its requests."""

    def __init__(self) -> None:
        self._bytes = bytearray(_REQUEST_BUFFER_BYTES)
        self._view = memoryview(self._bytes)

    def read(self, fd: int) -> Request | None:
        """Wait for a request; None when it was withdrawn. OSError ENODEV after unmounting."""
        try:
            length = os.readv(fd, (self._bytes,))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                return None
            raise
        _, opcode, unique, node, *_ = _HEADER.unpack_from(self._bytes)
        return Request(opcode, unique, node, self._view[_HEADER.size : length])


def reply(fd: int, unique: int, parts: Sequence[Buffer], length: int) -> None:
    """Answer with `length` bytes in `parts`; a withdrawn request is no error."""
    if len(parts) > _MAX_PARTS:
        parts = (b"".join(parts),)
    _write(fd, (_REPLY.pack(_REPLY.size + length, 0, unique), *parts))


def reply_error(fd: int, unique: int, number: int) -> None:
    """Answer with an errno, or with bare success for 0."""
    _write(fd, (_REPLY.pack(_REPLY.size, -number, unique),))


def notify_resend(fd: int) -> None:
    """Have the kernel hand out again what a dead predecessor read and never answered."""
    os.write(fd, _REPLY.pack(_REPLY.size, _NOTIFY_RESEND, 0))


def _write(fd: int, parts: Sequence[Buffer]) -> None:
    try:
        os.writev(fd, parts)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def negotiate(body: memoryview, wishes: int = 0) -> bytes | None:
    """The answer to INIT: 1 MiB requests, many at once, resending, and the flags in `wishes`.

    None for a major version that is not ours.
    """
    major, minor, max_readahead, flags = _INIT_IN.unpack_from(body)
    if major < 7:
        return None
    flags |= struct.unpack_from("<I", body, 16)[0] << 32 if flags & _EXTENDED_INIT else 0
    agreed = flags & (_WANTED | wishes)
    return _INIT_OUT.pack(
        7,
        min(minor, _MINOR) if major == 7 else _MINOR,
        max(max_readahead, 8 * MAX_REQUEST_BYTES),
        agreed & 0xFFFFFFFF,
        _MAX_BACKGROUND,
        _MAX_BACKGROUND * 3 // 4,
        4096,
        1,
        MAX_PAGES,
        0,
        agreed >> 32,
    )


def encode_entry(attributes: Attributes, *, name_valid_s: int, attributes_valid_s: int) -> bytes:
    """The answer to LOOKUP."""
    return (
        _ENTRY.pack(attributes.node, 0, name_valid_s, attributes_valid_s, 0, 0)
        + attributes.encode()
    )


def encode_attributes(attributes: Attributes, *, valid_s: int) -> bytes:
    """The answer to GETATTR."""
    return _ATTRIBUTES_VALID.pack(valid_s, 0, 0) + attributes.encode()


def encode_open() -> bytes:
    """The answer to OPEN and OPENDIR: no handle, and pages read before stay cached.

    Closing tells the server nothing: whoever starts a new server may have files open himself, and
    a fork that closes them must not wait for the server it is about to become.
    """
    return _OPEN.pack(0, _KEEP_CACHE | _NO_FLUSH, 0)


def decode_read(body: memoryview) -> tuple[int, int]:
    """Offset and size of a READ or READDIR."""
    _, offset, size = _READ.unpack_from(body)
    return offset, size


def decode_name(body: memoryview) -> bytes:
    """The name of a LOOKUP."""
    return bytes(body).partition(b"\0")[0]


def encode_directory(entries: Iterable[tuple[bytes, Attributes]], offset: int, size: int) -> bytes:
    """The answer to READDIR: at most `size` bytes of the `entries` from number `offset` on."""
    out = bytearray()
    for record in _directory_records(entries, offset):
        if len(out) + len(record) > size:
            break
        out += record
    return bytes(out)


def _directory_records(entries: Iterable[tuple[bytes, Attributes]], offset: int) -> Iterator[bytes]:
    for number, (name, attributes) in enumerate(entries):
        if number >= offset:
            kind = stat.S_IFDIR if attributes.size is None else stat.S_IFREG
            record = (
                _DIRECTORY_ENTRY.pack(attributes.node, number + 1, len(name), kind >> 12) + name
            )
            yield record.ljust(-(-len(record) // 8) * 8, b"\0")


def encode_statfs(total_bytes: int, files: int) -> bytes:
    """The answer to STATFS: a full file system of `total_bytes`."""
    return _STATFS.pack(-(-total_bytes // 4096), 0, 0, files, 0, 4096, 255, 4096)
