"""Extended attributes of an archive's member, as Linux would keep them when it is extracted.

What the kernel lets nobody set on such an entry would be in the layer and yet not be seen on its
mount, so it is left out, as extraction leaves it out. Access lists and capabilities get the form in
which the kernel gives them back.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from dsec_layers.model.tree import EntryKind

_NAMESPACES: Final = (b"trusted.", b"security.")
_USERS: Final = b"user."
_ACCESS_LISTS: Final = (b"system.posix_acl_access", b"system.posix_acl_default")
_CAPABILITY: Final = b"security.capability"

# linux/posix_acl_xattr.h: a version, then tag, permissions and id of each entry.
_ACL_HEAD: Final = struct.pack("<I", 2)
_ACL_ENTRY: Final = struct.Struct("<HHI")
# Tags are bits. Owner, users, group, groups, mask and others come in this order; with a user or a
# group of its own the list has a mask.
_ACL_TAGS: Final = re.compile(rb"\x01\x04\x10?\x20|\x01\x02*\x04\x08*\x10\x20")
_ACL_WITH_ID: Final = (0x02, 0x08)
_NO_ID: Final = 0xFFFFFFFF

# linux/capability.h: revision and flags, two pairs of sets, and in revision 3 the root's user id.
_CAPABILITIES: Final = struct.Struct("<I16s")
_CAPABILITIES_OF_ROOT: Final = struct.Struct("<I16sI")
_REVISION_2, _REVISION_3, _EFFECTIVE = 0x02000000, 0x03000000, 1


def kept(kind: EntryKind, xattrs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The attributes that an entry of this kind can have. Raises ValueError for malformed ones."""
    has_users = kind is EntryKind.FILE or kind is EntryKind.DIRECTORY
    namespaces = (*_NAMESPACES, _USERS) if has_users else _NAMESPACES
    for name, value in xattrs:
        if b"\0" in name:
            raise ValueError("has an extended attribute with a NUL in its name")
        if name in _ACCESS_LISTS:
            entries = _access_list(name, value)
            if entries and _takes_access_list(kind, name):
                yield name, _ACL_HEAD + entries
        elif name == _CAPABILITY:
            yield name, _capability(value)
        elif name.startswith(namespaces) and name not in namespaces:
            yield name, value


def _takes_access_list(kind: EntryKind, name: bytes) -> bool:
    return kind is EntryKind.DIRECTORY or (
        kind is not EntryKind.SYMLINK and name == _ACCESS_LISTS[0]
    )


def _access_list(name: bytes, value: bytes) -> bytes:
    """The entries of an access list, with no id where none counts; empty when it has none."""
    head, body = value[: len(_ACL_HEAD)], value[len(_ACL_HEAD) :]
    if head == _ACL_HEAD and not body:
        return b""
    if head == _ACL_HEAD and len(body) % _ACL_ENTRY.size == 0:
        entries = list(_ACL_ENTRY.iter_unpack(body))
        tags = bytes(tag & 0xFF for tag, _, _ in entries)
        sound = all(
            tag < 0x100 and rights < 8 and not (tag in _ACL_WITH_ID and number == _NO_ID)
            for tag, rights, number in entries
        )
        if sound and _ACL_TAGS.fullmatch(tags):
            return b"".join(
                _ACL_ENTRY.pack(tag, rights, number if tag in _ACL_WITH_ID else _NO_ID)
                for tag, rights, number in entries
            )
    raise ValueError(f"has a malformed access list {name.decode()}")


def _capability(value: bytes) -> bytes:
    """File capabilities; those of the machine's own root are of revision 2 when read."""
    if len(value) == _CAPABILITIES.size:
        magic, _ = _CAPABILITIES.unpack(value)
        if magic & ~_EFFECTIVE == _REVISION_2:
            return value
    elif len(value) == _CAPABILITIES_OF_ROOT.size:
        magic, sets, root = _CAPABILITIES_OF_ROOT.unpack(value)
        if magic & ~_EFFECTIVE == _REVISION_3 and root != _NO_ID:
            own = _CAPABILITIES.pack(_REVISION_2 | magic & _EFFECTIVE, sets)
            return value if root else own
    raise ValueError(f"has malformed capabilities ({_CAPABILITY.decode()})")
