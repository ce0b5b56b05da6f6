"""The file that says that a directory is a store, and how it is laid out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError, StoreError
from dsec_layers.model import canonical
from dsec_layers.registry import files

MARKER: Final = "dsec-store.json"
LAYOUT: Final = 1
_OF_FILE_SYSTEMS: Final = "lost+found"


class _Marker(msgspec.Struct, frozen=True):
    layout: int


def create(root: Path, url: str) -> None:
    """Mark the existing directory `root` as a store.

    Raises OSError, or InvalidInputError when there is something else in it.
    """
    others = sorted(each.name for each in root.iterdir() if not _may_be_there(each.name))
    if others and not (root / MARKER).exists():
        raise InvalidInputError(
            f"{url} is no store, and there is something else in it: {others[0]}",
            hint="name an empty directory, or one that does not exist yet",
        )
    with files.aside(root, root) as (fd, temporary):
        files.write_all(fd, encoded())
        os.fsync(fd)
        files.link_if_absent(temporary, root / MARKER)
    files.sync_directory(root)


def check(root: Path, url: str) -> None:
    """Raise StoreError unless `root` is a store of a layout that this program knows.

    Also asked when a blob is missing: below a mount point that lost its mount everything is.
    """
    with files.explained(f"cannot open the store {url}"):
        try:
            data = (root / MARKER).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            hint = "check the spelling and the mount; a push makes a new store"
            raise StoreError(f"there is no store at {url}", hint=hint) from None
    check_layout(data, url)


def _may_be_there(name: str) -> bool:
    """In a directory that is to become a store: what others write who make it one, too."""
    return name == _OF_FILE_SYSTEMS or name.startswith(files.TEMPORARY_PREFIX)


def encoded() -> bytes:
    """What the file says."""
    return canonical.encode(_Marker(LAYOUT))


def check_layout(data: bytes, url: str) -> None:
    """Raise StoreError unless the file that says `data` is of a layout that this program knows."""
    layout = canonical.decode(data, _Marker, what=f"{MARKER} of {url}").layout
    if layout != LAYOUT:
        hint = "use a newer version of this program"
        raise StoreError(f"{url} has layout {layout}, this version knows {LAYOUT}", hint=hint)
