"""Looking into layers without mounting them.

Our own reader over the metadata, chunks from a store.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model import merge
from dsec_layers.model.tree import BLOCK_SIZE, Entry, EntryKind, Tree

_MAX_LINKS = 40


class Entries(Protocol):
    """The entries of one layer: an `ErofsImage`, or a tree."""

    def stat(self, path: bytes) -> Entry:
        """The entry at `path`. Raises NotFoundError."""
        ...


@contextlib.contextmanager
def opened(bench: Workbench, layers: Sequence[MountLayer]) -> Iterator[tuple[ErofsImage, ...]]:
    """The metadata images of `layers`, in their order, for reading.

    Raises CorruptError, NotFoundError or StoreError.
    """
    images = MetadataImages(bench.home.root)
    with contextlib.ExitStack() as stack:
        for layer in layers:
            images.ensure(layer)
        yield tuple(stack.enter_context(images.open(layer.digest)) for layer in layers)


def composed_tree(images: Sequence[ErofsImage]) -> Tree:
    """What a mount of the layers shows; content digests are not known."""
    return reduce(merge.apply, (Tree.of(image.walk()) for image in images), Tree.of([]))


def find(images: Sequence[Entries], path: bytes) -> tuple[int, Entry]:
    """The layer (its index, lowest is 0) that gives `path` in the composition, and the entry.

    As the kernel does in a chroot: symlinks on the way and at the end are followed, and `..` leaves
    the directory that has been reached. But `path` may end in a slash whatever it names. Raises
    NotFoundError.
    """
    wanted = _text(path.strip(b"/"))
    places = [_root(images)]
    todo = deque(_names(path.rstrip(b"/")))
    links = 0
    while todo:
        name = todo.popleft()
        if places[-1].entry.kind is not EntryKind.DIRECTORY:
            at = _text(places[-1].entry.path)
            raise NotFoundError(f"no such path: /{wanted}: /{at} is not a directory")
        if name == b".":
            continue
        if name == b"..":
            places = places[:-1] or places
            continue
        place = _child(images, places[-1], name, wanted)
        if place.entry.kind is not EntryKind.SYMLINK:
            places.append(place)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise NotFoundError(f"too many symbolic links: /{wanted}")
        if place.entry.target.startswith(b"/"):
            places = places[:1]
        todo.extendleft(reversed(_names(place.entry.target)))
    return places[-1].index, places[-1].entry


def table_of(layer: MountLayer) -> ChunkTable:
    """The chunk table of a layer. Raises CorruptError, NotFoundError or StoreError."""
    return decode_table(layer.blobs.read(layer.manifest.table), layer.config.table)


def read_chunk(layer: MountLayer, chunk: Chunk) -> bytes:
    """The plain bytes of a chunk of a layer. Raises CorruptError, NotFoundError or StoreError."""
    pack = layer.manifest.packs[chunk.pack]
    stored = layer.blobs.read(pack, chunk.pack_offset, chunk.stored_length)
    return decode_chunk(stored, chunk.length, chunk.digest)


def read_file(layer: MountLayer, image: ErofsImage, entry: Entry) -> Iterator[bytes]:
    """The bytes of a file in pieces, every chunk checked.

    Raises InvalidInputError when it is no file, NotFoundError, CorruptError, StoreError.
    """
    if entry.kind is not EntryKind.FILE:
        raise InvalidInputError(f"/{_text(entry.path)} is a {entry.kind.name.lower()}, not a file")
    table = table_of(layer)
    position = 0
    for extent in image.extents(entry.path):
        yield from zeros(extent.file_offset - position)
        yield from _device(layer, table, extent.device_offset, extent.length)
        position = extent.file_offset + extent.length
    yield from zeros(entry.size - position)


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the composition, the layer that gives it, and those whose directories it is."""

    index: int
    entry: Entry
    merged: range


def _root(images: Sequence[Entries]) -> Place:
    root = topmost(images, range(len(images)), b"")
    assert root is not None
    return root


def _child(images: Sequence[Entries], parent: Place, name: bytes, wanted: str) -> Place:
    path = b"/".join(filter(None, (parent.entry.path, name)))
    found = topmost(images, parent.merged, path)
    if found is None:
        raise NotFoundError(f"no such path: /{wanted}", hint="`dsec-layers tree` lists them")
    return found


def topmost(images: Sequence[Entries], layers: range, path: bytes) -> Place | None:
    """What the composition of `layers` shows at `path`, whose parent directories are theirs."""
    for index in reversed(layers):
        with contextlib.suppress(NotFoundError):
            entry = images[index].stat(path)
            if entry.kind is EntryKind.WHITEOUT:
                return None
            return Place(index, entry, merged(images, range(layers.start, index + 1), path))
    return None


def merged(images: Sequence[Entries], layers: range, path: bytes) -> range:
    """The layers whose directories at `path` are one: down to the first that hides the others."""
    for index in reversed(layers):
        try:
            entry = images[index].stat(path)
        except NotFoundError:
            continue
        if entry.kind is not EntryKind.DIRECTORY:
            return range(index + 1, layers.stop)
        if entry.opaque:
            return range(index, layers.stop)
    return layers


def _names(path: bytes) -> list[bytes]:
    """The names to look up one after another; a slash at the end wants a directory, as `.` does."""
    names = [name for name in path.split(b"/") if name]
    return [*names, b"."] if names and path.endswith(b"/") else names


def _device(layer: MountLayer, table: ChunkTable, offset: int, length: int) -> Iterator[bytes]:
    for index in table.covering(offset, length):
        chunk = table[index]
        plain = read_chunk(layer, chunk)
        low = max(0, offset - chunk.device_offset)
        yield plain[low : offset + length - chunk.device_offset]


def zeros(count: int) -> Iterator[bytes]:
    """`count` zero bytes in pieces; none when it is not positive."""
    block = bytes(min(count, 256 * BLOCK_SIZE)) if count > 0 else b""
    while count > 0:
        yield block[:count]
        count -= len(block)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
