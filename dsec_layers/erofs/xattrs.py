"""Extended attributes behind an inode: a header of 12 bytes, then entries padded to 4 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsec_layers.erofs.layout import XATTR, XATTR_HEADER_SIZE, XATTR_PREFIXES, round_up
from dsec_layers.errors import CorruptError, InvalidInputError

_MAX_NAME_BYTES = 255
_MAX_VALUE_BYTES = 65535
_MAX_BODY_BYTES = XATTR_HEADER_SIZE + 4 * (65535 - 1)
_BY_NUMBER = {number: prefix for prefix, number in XATTR_PREFIXES}


def encode_xattrs(xattrs: Iterable[tuple[bytes, bytes]], path: bytes) -> bytes:
    """The xattr body of an inode; empty without xattrs. Raises InvalidInputError naming `path`."""
    body = bytearray()
    for name, value in xattrs:
        number, rest = _split(name, path)
        if len(name) > _MAX_NAME_BYTES or len(value) > _MAX_VALUE_BYTES:
            raise InvalidInputError(
                f"xattr {name!r} of {path!r} is too large",
                hint="names have up to 255 bytes (247 for trusted.overlay.*), values up to 65535",
            )
        body += XATTR.pack(len(rest), number, len(value)) + rest + value
        body += bytes(-len(body) % 4)
    if not body:
        return b""
    if len(body) + XATTR_HEADER_SIZE > _MAX_BODY_BYTES:
        raise InvalidInputError(
            f"the xattrs of {path!r} are larger than {_MAX_BODY_BYTES} bytes in all"
        )
    return bytes(XATTR_HEADER_SIZE) + body


def body_units(size: int) -> int:
    """How an inode gives the size of its xattrs: 0, or 1 + the 4-byte units behind the header."""
    return 1 + (size - XATTR_HEADER_SIZE) // 4 if size else 0


def body_size(units: int) -> int:
    """The inverse of `body_units`, in bytes."""
    return XATTR_HEADER_SIZE + 4 * (units - 1) if units else 0


def decode_xattrs(body: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The xattrs of a body, sorted by name. Raises CorruptError."""
    if not body:
        return ()
    if any(body[:XATTR_HEADER_SIZE]):
        raise CorruptError("an inode has shared xattrs, which layers do not use")
    xattrs = dict(pair for pair in _entries(body))
    return tuple(sorted(xattrs.items()))


def _entries(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = XATTR_HEADER_SIZE
    seen: set[bytes] = set()
    while position < len(body):
        name_length, number, value_length = XATTR.unpack_from(body, position)
        start = position + XATTR.size
        position = round_up(start + name_length + value_length, 4)
        if position > len(body) or number not in _BY_NUMBER:
            raise CorruptError("an xattr leaves its inode or has an unknown prefix")
        name = _BY_NUMBER[number] + body[start : start + name_length]
        if name in seen or b"\0" in name:
            raise CorruptError("an xattr has a bad name")
        seen.add(name)
        yield name, body[start + name_length : start + name_length + value_length]


def _split(name: bytes, path: bytes) -> tuple[int, bytes]:
    for prefix, number in XATTR_PREFIXES:
        if name.startswith(prefix) and (name == prefix) != prefix.endswith(b"."):
            return number, name[len(prefix) :]
    raise InvalidInputError(
        f"xattr {name!r} of {path!r} cannot be kept",
        hint="a layer holds user.*, trusted.*, security.* and POSIX access lists",
    )
