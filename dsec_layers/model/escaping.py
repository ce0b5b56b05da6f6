"""How a tree is stored below an overlay, where some inodes and xattrs mean something to overlayfs.

Overlayfs takes a character device 0:0 for a whiteout, and `trusted.overlay.*` xattrs for its own.
A tree may have both as content. Its stored form is what an EROFS image or an overlay upper holds:

- A whiteout is a character device 0:0; an opaque directory has `trusted.overlay.opaque` = `y`.
- A directory with whiteouts in it has an empty `trusted.overlay.origin`. Without it, and without
  such a directory in a lower layer, the kernel lists the names of the whiteouts.
- A content xattr `trusted.overlay.X` is stored as `trusted.overlay.overlay.X`; overlayfs shows it
  without the escape.
- A content device 0:0 is stored as an empty file with the same mode, owner, time and xattrs and
  `trusted.overlay.overlay.whiteout` = `y`. Should it have a content xattr
  `trusted.overlay.whiteout`, then its value follows after `yd`. An empty file whose content xattr
  of that name starts with `y` is stored with `yf` before the value, so that no two entries have the
  same stored form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dsec_layers.model.tree import Entry, EntryKind, Tree

# Looking a member up in its enumeration takes ten times as long, and this is done for each entry.
_DIRECTORY: Final = EntryKind.DIRECTORY
_FILE: Final = EntryKind.FILE
_CHAR: Final = EntryKind.CHAR
_WHITEOUT: Final = EntryKind.WHITEOUT
OVERLAY_PREFIX: Final = b"trusted.overlay."
ESCAPED_PREFIX: Final = b"trusted.overlay.overlay."
OPAQUE_XATTR: Final = b"trusted.overlay.opaque"
MARKER_XATTR: Final = b"trusted.overlay.whiteout"
ORIGIN_XATTR: Final = b"trusted.overlay.origin"


def stored_entries(tree: Tree) -> Iterator[Entry]:
    """The stored form of a whole tree, in its order."""
    with_whiteouts = {entry.parent for entry in tree if entry.kind is _WHITEOUT}
    for entry in tree:
        stored = to_stored(entry)
        if entry.path in with_whiteouts and entry.kind is _DIRECTORY:
            stored = replace(stored, xattrs=tuple(sorted((*stored.xattrs, (ORIGIN_XATTR, b"")))))
        yield stored


def to_stored(entry: Entry) -> Entry:
    """The stored form of a tree's entry; the same object where nothing needs an escape."""
    if entry.kind is _WHITEOUT:
        return Entry(path=entry.path, kind=_CHAR)
    device = entry.kind is _CHAR and entry.major == 0 and entry.minor == 0
    if not (entry.xattrs or entry.opaque or device):
        return entry
    xattrs = dict(entry.xattrs)
    if device or _is_empty_file(entry):
        _mark(xattrs, device=device)
    stored = {_escaped(name): value for name, value in xattrs.items()}
    if entry.opaque:
        stored[OPAQUE_XATTR] = b"y"
    kind = _FILE if device else entry.kind
    return replace(entry, kind=kind, opaque=False, xattrs=tuple(sorted(stored.items())))


def from_stored(entry: Entry) -> Entry:
    """The tree's entry of a stored form. Other xattrs of overlayfs itself are dropped."""
    if entry.kind is _CHAR and entry.major == 0 and entry.minor == 0:
        return Entry(path=entry.path, kind=_WHITEOUT)
    if not entry.xattrs:
        return entry
    stored = dict(entry.xattrs)
    opaque = entry.kind is _DIRECTORY and stored.get(OPAQUE_XATTR) == b"y"
    xattrs = {
        OVERLAY_PREFIX + name.removeprefix(ESCAPED_PREFIX)
        if name.startswith(ESCAPED_PREFIX)
        else name: value
        for name, value in stored.items()
        if name.startswith(ESCAPED_PREFIX) or not name.startswith(OVERLAY_PREFIX)
    }
    return from_overlay(replace(entry, opaque=opaque, xattrs=tuple(sorted(xattrs.items()))))


def from_overlay(entry: Entry) -> Entry:
    """The tree's entry of what a mounted overlay shows: devices 0:0 that are content come back."""
    if not _is_empty_file(entry):
        return entry
    xattrs = dict(entry.xattrs)
    value = xattrs.pop(MARKER_XATTR, None)
    if value is None or value[:1] != b"y" or value[:2] not in (b"y", b"yd", b"yf"):
        return entry
    if len(value) > 1:
        xattrs[MARKER_XATTR] = value[2:]
    ordered = tuple(sorted(xattrs.items()))
    if value[:2] == b"yf":
        return replace(entry, xattrs=ordered)
    return replace(entry, kind=_CHAR, digest=b"", xattrs=ordered)


def _is_empty_file(entry: Entry) -> bool:
    return entry.kind is _FILE and entry.size == 0


def _mark(xattrs: dict[bytes, bytes], *, device: bool) -> None:
    value = xattrs.get(MARKER_XATTR)
    if device:
        xattrs[MARKER_XATTR] = b"y" if value is None else b"yd" + value
    elif value is not None and value.startswith(b"y"):
        xattrs[MARKER_XATTR] = b"yf" + value


def _escaped(name: bytes) -> bytes:
    return (
        ESCAPED_PREFIX + name.removeprefix(OVERLAY_PREFIX)
        if name.startswith(OVERLAY_PREFIX)
        else name
    )
