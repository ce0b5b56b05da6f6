"""Small files that a layer has in common with the layer it was built on, stored once.

Overlayfs copies up a file whole when it is linked to or when its owner or mode changes. Large files
are found again by their chunks; a small one lies in a chunk with its neighbours. The new layer then
puts that chunk of the layer below on its own device and lets the file point into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dsec_layers.builder.contents import ContentPacker
from dsec_layers.chunks.constants import LARGE_FILE_BYTES
from dsec_layers.chunks.content import READ_WHOLE_BYTES, scan_bytes
from dsec_layers.chunks.packs import Held, KnownLayer, PackSet
from dsec_layers.chunks.pipeline import ChunkPipeline
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.erofs.inodes import Inode
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import CorruptError
from dsec_layers.model.content import Source
from dsec_layers.model.tree import BLOCK_SIZE, Entry, EntryKind

ReadChunk = Callable[[Chunk], bytes]


def copied_up(
    source: Source, image: ErofsImage, table: ChunkTable, read: ReadChunk
) -> dict[bytes, Held]:
    """The small contents of a layer below for which `source` has a file of the same path and size.

    `image` and `table` are of that layer, `read` gives the plain bytes of its chunks. The result
    is what `KnownLayer.contents` wants. Raises CorruptError and what `read` raises.
    """
    found: dict[bytes, Held] = {}
    last: tuple[Chunk | None, bytes] = (None, b"")
    for entry, inode in _in_both(source, image):
        if entry.kind is not EntryKind.FILE or entry.size > READ_WHOLE_BYTES:
            continue  # the size of a file with holes says nothing of its data
        held = _find(image, inode, table, entry)
        if held is not None:
            if held.chunk != last[0]:
                last = held.chunk, read(held.chunk)
            data = bytearray(entry.size)
            for at, offset, length in held.runs:
                data[at : at + length] = last[1][offset : offset + length]
            found.setdefault(scan_bytes(bytes(data[: entry.size])).digest, held)
    return found


def held_contents(known: Sequence[KnownLayer]) -> dict[bytes, Held]:
    """The contents of all known layers; the first layer that has one counts."""
    merged: dict[bytes, Held] = {}
    for layer in reversed(known):
        merged.update(layer.contents)
    return merged


def settle(contents: ContentPacker, pipeline: ChunkPipeline, packs: PackSet) -> None:
    """Give every borrowed file its place: in a chunk of a layer below, where its pack gives enough.

    What does not is read and stored again.
    """
    if not contents.borrowed:
        return
    pipeline.drain()
    usable = packs.worth_referring(held.chunk.digest for _, held in contents.borrowed)
    files: dict[bytes, list[tuple[Entry, Held]]] = {digest: [] for digest in sorted(usable)}
    again: list[Entry] = []
    for entry, held in contents.borrowed:
        if held.chunk.digest in usable:
            files[held.chunk.digest].append((entry, held))
        else:
            again.append(entry)
    contents.store_again(again)
    pipeline.drain()
    for digest, borrowed in files.items():
        chunk = borrowed[0][1].chunk
        contents.refer(chunk, borrowed)
        packs.add(digest, chunk.length, None)


def _in_both(source: Source, image: ErofsImage) -> Iterator[tuple[Entry, Inode]]:
    """The entries of `source` with what the layer below has at their paths.

    A name is looked up in its directory, and nothing below one that is not there.
    """
    directories = {b"": image.inode(image.root_nid)}
    for entry in source.tree.entries[1:]:
        directory = directories.get(entry.parent)
        inode = image.child(directory, entry.name) if directory else None
        if inode is None:
            continue
        if entry.kind is EntryKind.DIRECTORY:
            directories[entry.path] = inode
        yield entry, inode


def _find(image: ErofsImage, inode: Inode, table: ChunkTable, entry: Entry) -> Held | None:
    """Where a small file with the path and size of `entry` lies, when one chunk holds all of it."""
    if inode.kind is not EntryKind.FILE or inode.size != entry.size:
        return None
    extents = image.inode_extents(inode)
    if not 0 < sum(extent.length for extent in extents) < LARGE_FILE_BYTES:
        return None
    if extents[0].device_offset >= table.device_bytes:
        raise CorruptError(f"{entry.path!r} of the layer below lies behind the end of its data")
    chunk = table[table.index_at(extents[0].device_offset)]
    start = chunk.device_offset
    runs = tuple((e.file_offset, e.device_offset - start, e.length) for e in extents)
    inside = all(offset >= 0 and offset + length <= chunk.length for _, offset, length in runs)
    aligned = (start | chunk.length) % BLOCK_SIZE == 0
    return Held(chunk, runs) if inside and aligned else None
