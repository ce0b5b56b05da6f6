"""The fields of a tar archive: the 512-byte header block, numbers, pax records.

Formats: POSIX.1-2017 pax (ustar and pax interchange), the GNU tar manual ("Basic Tar Format"), and
the SCHILY.xattr records of star, which GNU tar and Go write too.
"""

from __future__ import annotations

import re
import struct
from typing import Final

import msgspec

BLOCK: Final = 512
_FIELDS: Final = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x")
_DECIMAL: Final = re.compile(rb"\s*(-?)(\d+)(?:\.(\d*))?\s*")
_CHECKSUM: Final = slice(148, 156)
_MAX_RECORDS: Final = 1 << 18


class MalformedError(ValueError):
    """A field is not what the format says; the reader adds the member's name."""


class Header(msgspec.Struct, frozen=True):
    """One header block. `name` has the ustar prefix in it; `mtime_ns` is in nanoseconds."""

    name: bytes
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    kind: bytes
    link: bytes
    major: int
    minor: int
    block: bytes


def parse_header(block: bytes) -> Header:
    """Parse a header block in the v7, ustar or GNU format. Raises MalformedError."""
    name, mode, uid, gid, size, mtime, checksum, kind, link, magic, _, _, major, minor, prefix = (
        _FIELDS.unpack(block)
    )
    if not _has_checksum(block, parse_number(checksum)):
        raise MalformedError("the checksum of a header is wrong")
    path = name.split(b"\0", 1)[0]
    # GNU headers ("ustar  ") have times and sparse maps where POSIX has the prefix.
    if magic.startswith(b"ustar\0") and (prefix := prefix.split(b"\0", 1)[0]):
        path = prefix + b"/" + path
    is_device = kind in (b"3", b"4")
    return Header(
        name=path,
        mode=parse_number(mode),
        uid=parse_number(uid),
        gid=parse_number(gid),
        size=parse_number(size),
        mtime_ns=parse_number(mtime) * 10**9,
        kind=kind,
        link=link.split(b"\0", 1)[0],
        major=parse_number(major) if is_device else 0,
        minor=parse_number(minor) if is_device else 0,
        block=block,
    )


def parse_number(field: bytes) -> int:
    """An octal field, or a big-endian two's complement one whose first bit is set."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
        return value - (1 << (8 * len(field) - 1)) if field[0] & 0x40 else value
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise MalformedError(f"not an octal number: {field!r}")
    return int(digits, 8) if digits else 0


def parse_count(text: bytes) -> int:
    """A decimal number that is not negative. Raises MalformedError."""
    if not text.isdigit() or len(text) > 20:
        raise MalformedError(f"not a number: {text[:40]!r}")
    return int(text)


def parse_time_ns(text: bytes) -> int:
    """Decimal seconds to nanoseconds, exactly; digits beyond the ninth are cut off."""
    match = _DECIMAL.fullmatch(text[:64])
    if match is None:
        raise MalformedError(f"not a time: {text[:40]!r}")
    sign, whole, fraction = match.groups()
    value = int(whole) * 10**9 + int((fraction or b"")[:9].ljust(9, b"0"))
    return -value if sign else value


def parse_pax(data: bytes) -> list[tuple[bytes, bytes]]:
    """The `length keyword=value` records in their order, as bytes. Raises MalformedError."""
    records = []
    start = 0
    while start < len(data) and data[start]:
        length_text, space, _ = data[start : start + 21].partition(b" ")
        end = start + parse_count(length_text)
        record = data[start + len(length_text) + 1 : end]
        keyword, equals, value = record[:-1].partition(b"=")
        if not space or not equals or end > len(data) or record[-1:] != b"\n":
            raise MalformedError("an extended header is damaged")
        records.append((keyword, value))
        if len(records) > _MAX_RECORDS:
            raise MalformedError(f"an extended header has more than {_MAX_RECORDS} records")
        start = end
    return records


def _has_checksum(block: bytes, expected: int) -> bool:
    """Sum all bytes, the checksum taken as spaces. Some old writers took bytes as signed."""
    rest = block[: _CHECKSUM.start] + block[_CHECKSUM.stop :]
    missing = sum(rest) + 8 * ord(" ") - expected
    return missing == 0 or missing == 256 * sum(byte >> 7 for byte in rest)
