"""Headers of tar members: a ustar block, and before it the pax records for what has no room there.

Formats: POSIX.1-2017 pax interchange, and the SCHILY.xattr records of star. Names are bytes; where
they are no UTF-8, a record says that they are binary.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from dsec_layers.model.tree import Entry, EntryKind

BLOCK: Final = 512
_FIELDS: Final = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x")
_NAME_BYTES: Final = 100
_ID_BYTES: Final = 8
_LONG_BYTES: Final = 12
_NS: Final = 10**9
_CHECKSUM_AT: Final = 148
_NO_CHECKSUM: Final = b" " * 8
_PAX_NAME: Final = b"././@PaxHeader"
_PLAIN: Final = Entry(path=b"", kind=EntryKind.FILE, mode=0o644)
_TEXTS: Final = (b"path", b"linkpath", b"GNU.sparse.name")

Records = Mapping[bytes, bytes]


def member_header(
    name: bytes,
    kind: bytes,
    entry: Entry,
    *,
    size: int = 0,
    link: bytes = b"",
    records: Records | None = None,
) -> bytes:
    """All blocks before the data of a member.

    `entry` gives mode, owner, time, xattrs and device number; `kind` is the letter of the format,
    `size` the length of the data, `records` are further pax records.
    """
    pax = {**_long_texts(name, link), **_long_numbers(entry, size), **(records or {})}
    if not all(map(_is_utf8, (pax.get(keyword, b"") for keyword in _TEXTS))):
        pax = {b"hdrcharset": b"BINARY", **pax}
    for attribute, value in entry.xattrs:
        pax[b"SCHILY.xattr." + _escaped(attribute)] = value
    block = _block(name, kind, entry, size, link)
    return _pax_member(pax) + block if pax else block


def file_header(name: bytes, size: int) -> bytes:
    """One block for a plain file of root's, of whatever size; its time is 0."""
    return _block(name, b"0", _PLAIN, size, b"")


def padding(size: int) -> bytes:
    """The zeros that fill data of `size` bytes up to whole blocks."""
    return bytes(-size % BLOCK)


def _long_texts(name: bytes, link: bytes) -> dict[bytes, bytes]:
    texts = {b"path": name, b"linkpath": link}
    return {keyword: text for keyword, text in texts.items() if len(text) > _NAME_BYTES}


def _long_numbers(entry: Entry, size: int) -> dict[bytes, bytes]:
    numbers = {
        b"uid": (entry.uid, _ID_BYTES),
        b"gid": (entry.gid, _ID_BYTES),
        b"size": (size, _LONG_BYTES),
    }
    found = {
        keyword: b"%d" % value
        for keyword, (value, width) in numbers.items()
        if not _has_room(value, width)
    }
    seconds, fraction = divmod(entry.mtime_ns, _NS)
    if fraction or not _has_room(seconds, _LONG_BYTES):
        found[b"mtime"] = _time(entry.mtime_ns)
    return found


def _time(mtime_ns: int) -> bytes:
    """Decimal seconds; the sign is that of the whole, also of what is less than a second."""
    seconds, fraction = divmod(abs(mtime_ns), _NS)
    text = b"%s%d.%09d" % (b"-" if mtime_ns < 0 else b"", seconds, fraction)
    return text.rstrip(b"0").rstrip(b".")


def _escaped(attribute: bytes) -> bytes:
    """A name without what ends a keyword, as GNU tar writes it."""
    return attribute.replace(b"%", b"%25").replace(b"=", b"%3D")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _pax_member(records: Records) -> bytes:
    data = b"".join(_record(keyword, value) for keyword, value in records.items())
    return _block(_PAX_NAME, b"x", _PLAIN, len(data), b"") + data + padding(len(data))


def _record(keyword: bytes, value: bytes) -> bytes:
    """`length keyword=value`, a line whose length counts itself."""
    rest = b" %s=%s\n" % (keyword, value)
    length = len(rest) + len(str(len(rest)))
    length = len(rest) + len(str(length))  # its own digits may have made it a digit longer
    return b"%d%s" % (length, rest)


def _block(name: bytes, kind: bytes, entry: Entry, size: int, link: bytes) -> bytes:
    block = _FIELDS.pack(
        name[:_NAME_BYTES],
        _number(entry.mode, _ID_BYTES),
        _number(entry.uid, _ID_BYTES),
        _number(entry.gid, _ID_BYTES),
        _number(size, _LONG_BYTES),
        _number(entry.mtime_ns // _NS, _LONG_BYTES),
        _NO_CHECKSUM,
        kind,
        link[:_NAME_BYTES],
        b"ustar\00000",
        b"",
        b"",
        _number(entry.major, _ID_BYTES),
        _number(entry.minor, _ID_BYTES),
        b"",
    )
    checksum = b"%06o\0 " % sum(block)
    return block[:_CHECKSUM_AT] + checksum + block[_CHECKSUM_AT + len(checksum) :]


def _has_room(value: int, width: int) -> bool:
    """Whether an octal field of `width` bytes, the last of them NUL, can hold a number."""
    return 0 <= value < 1 << 3 * (width - 1)


def _number(value: int, width: int) -> bytes:
    """Octal, or where that has no room in binary, as GNU tar does: all readers know both."""
    if _has_room(value, width):
        return b"%0*o\0" % (width - 1, value)
    binary = value.to_bytes(width, "big", signed=True)
    return bytes((binary[0] | 0x80,)) + binary[1:]
