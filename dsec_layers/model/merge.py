"""How one layer lies over another: the meaning of whiteouts and opaque directories, as values.

An upper tree is a diff. Over a lower tree, its entry at a path

- of kind WHITEOUT removes the path and everything below it,
- that is a directory and not opaque gives a directory its attributes and leaves its children,
- of any other kind, or opaque, takes the place of the path and of everything below it.

Both operations agree with what overlayfs shows. They are associative: `apply(a, fold(b, c))` equals
`apply(apply(a, b), c)`. Hard-link groups of the two sides are never joined; a link to a file of a
lower layer is made by listing all its names in the upper one, as a copy-up does.

A whiteout may hide nothing, and then only tells the name of a file that once was there: `fold`
leaves none in opaque directories.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import msgspec

from dsec_layers.model.content import Content, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree

# Looking a member up in its enumeration takes ten times as long, and this is done for each entry.
_DIRECTORY: Final = EntryKind.DIRECTORY
_FILE: Final = EntryKind.FILE
_WHITEOUT: Final = EntryKind.WHITEOUT


def apply(lower: Tree, upper: Tree) -> Tree:
    """The whole tree seen when the diff `upper` lies over the whole tree `lower`."""
    return Tree.of(_consumed(_stacked(lower, upper)))


def fold(lower: Tree, upper: Tree) -> Tree:
    """One diff with the effect of the diff `lower` followed by the diff `upper`, over any tree."""
    return Tree.of(_without_hidden_whiteouts(_stacked(lower, upper)))


def apply_sources(lower: Source, upper: Source) -> Source:
    """`apply` with the places of the contents."""
    return _with_contents(apply(lower.tree, upper.tree), lower, upper)


def fold_sources(lower: Source, upper: Source) -> Source:
    """`fold` with the places of the contents."""
    return _with_contents(fold(lower.tree, upper.tree), lower, upper)


def _with_contents(tree: Tree, lower: Source, upper: Source) -> Source:
    places: dict[bytes, Content] = dict(lower.contents)
    for entry in upper.tree:  # every entry of the upper is in the result
        if entry.kind is _FILE:
            places[entry.path] = upper.contents[entry.path]
    paths = [entry.path for entry in tree if entry.kind is _FILE]
    if len(paths) != len(places):  # some of the lower's are hidden
        places = {path: places[path] for path in paths}
    return Source(tree, places)


def _stacked(lower: Tree, upper: Tree) -> dict[bytes, Entry]:
    """Both trees by path, the upper's entries hiding and replacing the lower's."""
    stacked = lower.by_path()
    lower_paths = list(stacked)  # sorted, so that what lies below a path is one slice
    first_group = 1 + max((entry.link_group for entry in lower), default=0)
    # Parents come before their children, so whatever is removed below a path is the lower's.
    for entry in upper:
        below = stacked.get(entry.path)
        merges = entry.kind is _DIRECTORY and not entry.opaque
        if below is not None and below.kind is _DIRECTORY and not merges:
            for path in _below(entry.path, lower_paths):
                stacked.pop(path, None)
        if merges and below is not None and (below.opaque or below.kind is not _DIRECTORY):
            entry = msgspec.structs.replace(entry, opaque=True)
        if entry.link_group:
            entry = msgspec.structs.replace(entry, link_group=entry.link_group + first_group)
        stacked[entry.path] = entry
    return stacked


def _without_hidden_whiteouts(diff: dict[bytes, Entry]) -> Iterator[Entry]:
    """All but the whiteouts inside of opaque directories."""
    opaque = {path for path, entry in diff.items() if entry.opaque}
    for path, entry in diff.items():
        if entry.kind is not _WHITEOUT or opaque.isdisjoint(_parents(path)):
            yield entry


def _parents(path: bytes) -> Iterator[bytes]:
    while path:
        path = path.rpartition(b"/")[0]
        yield path


def _below(path: bytes, ordered: list[bytes]) -> list[bytes]:
    """The paths of the sorted list that lie inside the directory `path`."""
    if path == b"":
        return ordered[1:]
    start = bisect_left(ordered, path + b"/")
    return ordered[start : bisect_left(ordered, path + b"0", start)]  # b"0" is the byte after b"/"


def _consumed(stacked: dict[bytes, Entry]) -> Iterator[Entry]:
    for entry in stacked.values():
        if entry.opaque:
            yield msgspec.structs.replace(entry, opaque=False)
        elif entry.kind is not _WHITEOUT:
            yield entry
