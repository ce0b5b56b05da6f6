"""Writing a diff as the upper directory of an overlay: the opposite of `sources.upper`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from dsec_layers.builder.placing import NODES, Attributes, set_attributes
from dsec_layers.linux import cancelling
from dsec_layers.model.escaping import stored_entries
from dsec_layers.model.tree import Entry, EntryKind, Tree

# The data of a file: pieces of (offset in the file, bytes); between them are holes.
Read = Callable[[Entry], Iterator[tuple[int, bytes]]]


def write_upper(upper: Path, tree: Tree, read: Read) -> None:
    """Fill the empty directory `upper`, so that it holds `tree`. Raises OSError and as `read`."""
    given = tree.by_path()
    links: dict[int, Path] = {}
    folders: list[tuple[Path, Entry]] = []
    for entry in stored_entries(tree):
        cancelling.check()
        place = upper / os.fsdecode(entry.path) if entry.path else upper
        if entry.kind is EntryKind.DIRECTORY:
            folders.append((place, entry))
            place.mkdir(exist_ok=not entry.path)
            continue
        first = links.setdefault(entry.link_group, place) if entry.link_group else place
        if first is not place:
            os.link(first, place, follow_symlinks=False)
            continue
        _write(place, entry, given[entry.path], read)
        set_attributes(place, entry, Attributes())
    for place, entry in reversed(folders):  # what is made in a directory changes its time
        set_attributes(place, entry, Attributes())


def _write(place: Path, entry: Entry, given: Entry, read: Read) -> None:
    if entry.kind is EntryKind.SYMLINK:
        place.symlink_to(os.fsdecode(entry.target))
    elif entry.kind is EntryKind.FILE:
        with place.open("xb") as file:
            if given.kind is EntryKind.FILE:  # else a device that is stored as an empty file
                for offset, piece in read(given):
                    cancelling.check()
                    file.seek(offset)
                    file.write(piece)
            file.truncate(entry.size)
    else:
        os.mknod(place, NODES[entry.kind], os.makedev(entry.major, entry.minor))
