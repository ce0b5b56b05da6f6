"""What FUSE says of the nodes of a whole tree: attributes, directories with them, xattrs.

Structures as in `fuse`, of which this is the part that only a file system with all kinds of files
needs.
"""

from __future__ import annotations

import errno
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

VALID_S: Final = 10**6  # a mount shows the same tree for as long as it is there

_NS: Final = 10**9
_U64: Final = 2**64 - 1
_ATTRIBUTES: Final = struct.Struct(
    "<QQQQQQIIIIIIIIII"
)  # ino, size, blocks, 3 times, 3 ns, mode, nlink, uid, gid, rdev, block size, flags
_ENTRY: Final = struct.Struct(
    "<QQQQII"
)  # node, generation, name valid s, attributes valid s, both again in ns
_DIRECTORY_ENTRY: Final = struct.Struct("<QQII")  # ino, offset of the next, name length, type
_XATTR_IN: Final = struct.Struct("<II")  # size, padding
_XATTR_OUT: Final = struct.Struct("<II")
_NO_SUCH_NAME: Final = _ENTRY.pack(0, 0, VALID_S, 0, 0, 0) + bytes(_ATTRIBUTES.size)


@dataclass(frozen=True, slots=True)
class NodeAttributes:
    """What stat shows. `mode` has the type bits; all three times are `mtime_ns`."""

    node: int
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    major: int = 0
    minor: int = 0

    def encode(self) -> bytes:
        """The `fuse_attr` structure."""
        seconds, ns = divmod(self.mtime_ns, _NS)
        seconds &= _U64
        device = (self.minor & 0xFF) | (self.major << 8) | ((self.minor & ~0xFF) << 12)
        blocks = -(-self.size // 512)
        return _ATTRIBUTES.pack(
            self.node,
            self.size,
            blocks,
            *(seconds, seconds, seconds),
            *(ns, ns, ns),
            self.mode,
            self.links,
            self.uid,
            self.gid,
            device,
            4096,
            0,
        )


Listing = Sequence[tuple[bytes, int, int]]  # name, node, type bits of its mode


def encode_entry(attributes: NodeAttributes | None) -> bytes:
    """The answer to LOOKUP; None says that there is no such name, which is remembered too."""
    if attributes is None:
        return _NO_SUCH_NAME
    return _ENTRY.pack(attributes.node, 0, VALID_S, VALID_S, 0, 0) + attributes.encode()


def encode_attributes(attributes: NodeAttributes) -> bytes:
    """The answer to GETATTR."""
    return struct.pack("<QII", VALID_S, 0, 0) + attributes.encode()


def encode_directory(
    listing: Listing,
    offset: int,
    size: int,
    attributes: Callable[[int], NodeAttributes] | None = None,
) -> bytes:
    """At most `size` bytes of `listing` from number `offset` on, for READDIR.

    With `attributes`, which gives those of a node, for READDIRPLUS.
    """
    out = bytearray()
    for record in _records(listing, offset, attributes):
        if len(out) + len(record) > size:
            break
        out += record
    return bytes(out)


def _records(
    listing: Listing, offset: int, attributes: Callable[[int], NodeAttributes] | None
) -> Iterator[bytes]:
    for number in range(offset, len(listing)):
        name, node, mode = listing[number]
        head = encode_entry(attributes(node)) if attributes else b""
        record = head + _DIRECTORY_ENTRY.pack(node, number + 1, len(name), stat.S_IFMT(mode) >> 12)
        record += name
        yield record.ljust(-(-len(record) // 8) * 8, b"\0")


def decode_xattr_size(body: memoryview) -> int:
    """How many bytes a GETXATTR or LISTXATTR takes; 0 asks how many there are."""
    size: int = _XATTR_IN.unpack_from(body)[0]
    return size


def decode_xattr_name(body: memoryview) -> bytes:
    """The name in a GETXATTR."""
    return bytes(body[_XATTR_IN.size :]).partition(b"\0")[0]


def encode_xattr(value: bytes, size: int) -> bytes:
    """The answer to GETXATTR and LISTXATTR. Raises OSError ERANGE when `size` is too small."""
    if not size:
        return _XATTR_OUT.pack(len(value), 0)
    if len(value) > size:
        raise OSError(errno.ERANGE, "the value is longer than asked for")
    return value
