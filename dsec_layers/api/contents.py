"""Looking into layers without mounting them.

Our own reader over the metadata, chunks from a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import reduce

from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.loading import decode_table
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.model import merge
from dsec_layers.model.tree import BLOCK_SIZE, Entry, EntryKind, Tree

_MAX_LINKS = 40


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
    return reduce(merge.apply, (Tree.of(image.walk()) for image in images))


def find(images: Sequence[ErofsImage], path: bytes) -> tuple[int, Entry]:
    """The layer (its index, lowest is 0) that gives `path` in the composition, and the entry.

    Symlinks on the way and at the end are followed, inside the tree. Raises NotFoundError.
    """
    shown = path
    for _ in range(_MAX_LINKS):
        index, entry, rest = _walk(images, path, shown)
        if entry.kind is not EntryKind.SYMLINK:
            return index, entry
        target = images[index].readlink(entry.path)
        path = _joined(entry.parent, target, rest)
    raise NotFoundError(f"too many symbolic links: /{_text(shown)}")


def table_of(layer: MountLayer) -> ChunkTable:
    """The chunk table of a layer. Raises CorruptError, NotFoundError or StoreError."""
    return decode_table(layer.blobs.read(layer.manifest.table), layer.config.table)


def read_file(layer: MountLayer, image: ErofsImage, entry: Entry) -> Iterator[bytes]:
    """The bytes of a file in pieces, every chunk checked.

    Raises InvalidInputError when it is no file, NotFoundError, CorruptError, StoreError.
    """
    if entry.kind is not EntryKind.FILE:
        raise InvalidInputError(f"/{_text(entry.path)} is a {entry.kind.name.lower()}, not a file")
    table = table_of(layer)
    position = 0
    for extent in image.extents(entry.path):
        yield from _zeros(extent.file_offset - position)
        yield from _device(layer, table, extent.device_offset, extent.length)
        position = extent.file_offset + extent.length
    yield from _zeros(entry.size - position)


def _walk(images: Sequence[ErofsImage], path: bytes, shown: bytes) -> tuple[int, Entry, bytes]:
    """Follow `path` to its end or to the first symlink.

    Returns that and what is left of the path.
    """
    names = path.split(b"/") if path else []
    visible = range(len(images))
    index, entry = _topmost(images, visible, b"", shown)
    for depth in range(1, len(names) + 1):
        visible = _merged(images, visible, entry.path)
        index, entry = _topmost(images, visible, b"/".join(names[:depth]), shown)
        if entry.kind is EntryKind.SYMLINK:
            return index, entry, b"/".join(names[depth:])
        if entry.kind is not EntryKind.DIRECTORY and depth < len(names):
            raise NotFoundError(f"/{_text(shown)}: /{_text(entry.path)} is not a directory")
    return index, entry, b""


def _topmost(
    images: Sequence[ErofsImage], visible: range, path: bytes, shown: bytes
) -> tuple[int, Entry]:
    for index in reversed(visible):
        with contextlib.suppress(NotFoundError):
            entry = images[index].stat(path)
            if entry.kind is not EntryKind.WHITEOUT:
                return index, entry
            break
    raise NotFoundError(f"no such path: /{_text(shown)}", hint="`dsec-layers tree` lists them")


def _merged(images: Sequence[ErofsImage], visible: range, path: bytes) -> range:
    """The layers whose directories at `path` are merged.

    Down to the first that hides the others.
    """
    for index in reversed(visible):
        try:
            entry = images[index].stat(path)
        except NotFoundError:
            continue
        if entry.kind is not EntryKind.DIRECTORY:
            return range(index + 1, visible.stop)
        if entry.opaque:
            return range(index, visible.stop)
    return visible


def _joined(parent: bytes, target: bytes, rest: bytes) -> bytes:
    """The path that a symlink in the directory `parent` leads to; `..` stops at the root."""
    names: list[bytes] = [] if target.startswith(b"/") or not parent else parent.split(b"/")
    for name in [*target.split(b"/"), *rest.split(b"/")]:
        if name == b"..":
            names = names[:-1]
        elif name not in (b"", b"."):
            names.append(name)
    return b"/".join(names)


def _device(layer: MountLayer, table: ChunkTable, offset: int, length: int) -> Iterator[bytes]:
    for index in table.covering(offset, length):
        chunk = table[index]
        pack = layer.manifest.packs[chunk.pack]
        stored = layer.blobs.read(pack, chunk.pack_offset, chunk.stored_length)
        plain = decode_chunk(stored, chunk.length, chunk.digest)
        low = max(0, offset - chunk.device_offset)
        yield plain[low : offset + length - chunk.device_offset]


def _zeros(count: int) -> Iterator[bytes]:
    block = bytes(min(count, 256 * BLOCK_SIZE)) if count > 0 else b""
    while count > 0:
        yield block[:count]
        count -= len(block)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
