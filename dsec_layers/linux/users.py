"""Looking up a user as Docker does: from the root file system's own passwd and group files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import inroot

_MAX_ID = 2**32 - 2


class User(msgspec.Struct, frozen=True):
    """The identity of a process. `groups` are the supplementary groups."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_user(root: Path, wanted: str) -> User:
    """The user `name`, `uid`, `name:group` or `uid:gid` of the file system `root`.

    A number needs no entry (its group is then 0 and its home `/`). A group that is given replaces
    the user's own and its supplementary groups. Raises InvalidInputError for an unknown name.
    """
    name, colon, group = wanted.partition(":")
    entry = _find(root, "/etc/passwd", name, fields=7)
    if entry is not None:
        login, uid, gid, home = entry[0], int(entry[2]), int(entry[3]), entry[5] or "/"
    else:
        login, uid, gid, home = "", _number(name, f"no user {name!r} in /etc/passwd"), 0, "/"
    if colon:
        return User(uid, _find_group(root, group), (), home)
    return User(uid, gid, _groups_of(root, login, gid), home)


def _find_group(root: Path, name: str) -> int:
    entry = _find(root, "/etc/group", name, fields=4)
    return int(entry[2]) if entry else _number(name, f"no group {name!r} in /etc/group")


def _groups_of(root: Path, login: str, gid: int) -> tuple[int, ...]:
    if not login:
        return ()
    entries = _entries(root, "/etc/group", fields=4)
    found = {int(entry[2]) for entry in entries if login in entry[3].split(",")}
    return tuple(sorted(found - {gid}))


def _find(root: Path, path: str, wanted: str, *, fields: int) -> list[str] | None:
    """The entry with that name, else the first with that number."""
    entries = list(_entries(root, path, fields=fields))
    for column in (0, 2):
        for entry in entries:
            if entry[column] == wanted:
                return entry
    return None


def _entries(root: Path, path: str, *, fields: int) -> Iterator[list[str]]:
    """The well-formed lines of a passwd or group file; libc skips the others too."""
    text = inroot.read_file(root, path) or b""
    for line in text.decode(errors="surrogateescape").split("\n"):
        entry = line.split(":")
        numbers = entry[2:4] if fields == 7 else entry[2:3]
        if len(entry) == fields and entry[0] and all(map(_is_id, numbers)):
            yield entry


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _MAX_ID


def _number(text: str, otherwise: str) -> int:
    if not _is_id(text):
        raise InvalidInputError(otherwise, hint="create it in an earlier step, or give a number")
    return int(text)
