"""Layers opened for reading: their trees and chunk tables, each read when it is first asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from dsec_layers.api import contents
from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.erofs.inodes import Inode
from dsec_layers.erofs.planning import Extent
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model import merge
from dsec_layers.model.tree import Entry, EntryKind, Tree


class OpenedLayer:
    """A layer and its metadata image. What is derived of them is kept; no file data is read."""

    def __init__(self, layer: MountLayer, image: ErofsImage) -> None:
        self.layer = layer
        self.image = image
        self._inodes: dict[bytes, Inode] = {}  # of files, when the tree was read

    @property
    def digest(self) -> str:
        """The layer digest."""
        return self.layer.descriptor.digest

    @cached_property
    def tree(self) -> Tree:
        """What this layer alone holds; content digests are not known."""
        return Tree.of(self._walk())

    def extents(self, path: bytes) -> list[Extent]:
        """See `ErofsImage.extents`; fast once the tree was read."""
        inode = self._inodes.get(path)
        return self.image.inode_extents(inode) if inode else self.image.extents(path)

    @cached_property
    def table(self) -> ChunkTable:
        """Its chunk table. Raises CorruptError, NotFoundError or StoreError."""
        return contents.table_of(self.layer)

    def _walk(self) -> Iterator[Entry]:
        for entry, inode in self.image.walk_inodes():
            if entry.kind is EntryKind.FILE:
                self._inodes[entry.path] = inode
            yield entry


class Given(NamedTuple):
    """An entry of a composition, and the number of the layer that gives it, 0 being the lowest."""

    layer: int
    entry: Entry


@contextlib.contextmanager
def opened(bench: Workbench, layers: Sequence[MountLayer]) -> Iterator[tuple[OpenedLayer, ...]]:
    """`layers` in their order, open for the block.

    Raises CorruptError, NotFoundError or StoreError.
    """
    with contents.opened(bench, layers) as images:
        yield tuple(map(OpenedLayer, layers, images))


def composition(trees: Sequence[Tree]) -> Mapping[bytes, Given]:
    """What a mount of layers with these trees (lowest first) shows, by path, in path order."""
    givers = {
        entry.path: number
        for number, tree in enumerate(trees)
        for entry in tree
        if entry.kind is not EntryKind.WHITEOUT
    }
    whole = Tree.of([])
    for tree in trees:
        whole = merge.apply(whole, tree)
    return {entry.path: Given(givers[entry.path], entry) for entry in whole}


def text(path: bytes) -> str:
    """A path or link target of a tree as text; what is no UTF-8 is shown by escapes."""
    return path.decode("utf-8", "backslashreplace")


def raw(path: str) -> bytes:
    """A path as it was given on the command line, as bytes."""
    return path.encode("utf-8", "surrogateescape")
