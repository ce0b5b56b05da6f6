"""Trees that an image can hold, and the contents of theirs as an export takes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from dsec_layers.exporting.layertar import FileData
from dsec_layers.model.content import Content, LocalFile, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.trees import Contents, data_runs, trees, write_sparse

Drawn = tuple[Tree, Contents]


def exportable_trees(*, changes: bool = True) -> st.SearchStrategy[Drawn]:
    """As `trees`, without sockets and names that mean deletions in an image."""
    return trees(changes=changes).map(_exportable)


def data_in(contents: Contents) -> Callable[[Entry], FileData]:
    """What gives the contents of a tree to its export, holes left out."""

    def data_of(entry: Entry) -> FileData:
        data = contents[entry.path]
        runs = tuple(data_runs(data))
        return FileData(runs, (data[at : at + length] for at, length in runs))

    return data_of


def without_digests(tree: Tree) -> list[Entry]:
    """The entries as they are before packing."""
    return [msgspec.structs.replace(entry, digest=b"") for entry in tree]


def source_of(drawn: Drawn, folder: Path) -> Source:
    """A tree and its contents in files of a new folder."""
    tree, contents = drawn
    folder.mkdir()
    places: dict[bytes, Content] = {}
    for number, (path, data) in enumerate(contents.items()):
        place = os.fsencode(folder / str(number))
        write_sparse(place, data)
        places[path] = LocalFile(place)
    return Source(Tree.of(without_digests(tree)), places)


def _exportable(drawn: Drawn) -> Drawn:
    tree, contents = drawn
    kept = [
        entry
        for entry in tree
        if entry.kind is not EntryKind.SOCKET
        and not any(name.startswith(b".wh.") for name in entry.path.split(b"/"))
    ]
    paths = {entry.path for entry in kept}
    return Tree.of(kept), {path: data for path, data in contents.items() if path in paths}
