"""What overlayfs writes into an upper, and shows of escaped content, turned into tree entries.

An upper holds the kernel's own marks as `trusted.overlay.*` attributes and whiteouts as 0:0
character devices. Content that looks like such a mark is stored one step escaped:
`trusted.overlay.X` as `trusted.overlay.overlay.X`, and a 0:0 device as an empty file marked with
`trusted.overlay.overlay.whiteout`. Seen through a mounted overlay one step of the escape is gone.
(Kernel documentation: filesystems/overlayfs, "Nesting overlayfs mounts".)
"""

from __future__ import annotations

from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.tree import Entry, EntryKind

_PREFIX: Final = b"trusted.overlay."
_ESCAPED: Final = b"trusted.overlay.overlay."
_OPAQUE: Final = b"trusted.overlay.opaque"
_WHITEOUT: Final = b"trusted.overlay.whiteout"
_NOT_PLAIN: Final = frozenset({b"trusted.overlay.redirect", b"trusted.overlay.metacopy"})

Attributes = tuple[tuple[bytes, bytes], ...]


def from_upper(entry: Entry) -> Entry:
    """The meaning of an entry of an overlay upper: whiteout, opaque directory or restored content.

    Raises InvalidInputError for a redirect or a metacopy: their data lies in another layer.
    """
    if _is_null_device(entry):
        return Entry(path=entry.path, kind=EntryKind.WHITEOUT)
    marks = {name: value for name, value in entry.xattrs if name.startswith(_PREFIX)}
    if not marks:
        return entry
    if not _NOT_PLAIN.isdisjoint(marks):
        raise InvalidInputError(
            f"{entry.path!r} of the overlay upper refers to another layer",
            hint="mount the overlay with redirect_dir=off and metacopy=off",
        )
    if _WHITEOUT in marks and _is_empty_file(entry):
        return Entry(path=entry.path, kind=EntryKind.WHITEOUT)
    content = msgspec.structs.replace(
        entry,
        xattrs=_unescaped(entry.xattrs),
        opaque=entry.kind is EntryKind.DIRECTORY and marks.get(_OPAQUE) == b"y",
    )
    return from_mounted(content)


def from_mounted(entry: Entry) -> Entry:
    """The content behind an entry of a mounted overlay: an escaped 0:0 device is one again."""
    if not (_is_empty_file(entry) and any(name == _WHITEOUT for name, _ in entry.xattrs)):
        return entry
    xattrs = tuple(pair for pair in entry.xattrs if pair[0] != _WHITEOUT)
    return msgspec.structs.replace(entry, kind=EntryKind.CHAR, xattrs=xattrs)


def _unescaped(xattrs: Attributes) -> Attributes:
    """Content attributes only, one step of the escape undone; the order by name is kept."""
    kept = []
    for name, value in xattrs:
        if name.startswith(_ESCAPED):
            kept.append((_PREFIX + name[len(_ESCAPED) :], value))
        elif not name.startswith(_PREFIX):
            kept.append((name, value))
    return tuple(sorted(kept))


def _is_null_device(entry: Entry) -> bool:
    return entry.kind is EntryKind.CHAR and entry.major == 0 and entry.minor == 0


def _is_empty_file(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and entry.size == 0
