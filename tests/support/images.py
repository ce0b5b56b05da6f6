"""EROFS images of trees with contents, and their devices, made the obvious way, without chunks."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from dsec_layers.erofs.planning import Extent, erofs_runs
from dsec_layers.erofs.writer import write_image
from dsec_layers.model.tree import BLOCK_SIZE, EntryKind, Tree
from tests.support.trees import Contents, data_runs

UUID = bytes(range(16))


@dataclass(frozen=True)
class Image:
    """An image, the bytes of its device, and where each file lies on it, by its first path."""

    metadata: bytes = field(repr=False)
    device: bytes = field(repr=False)
    extents: dict[bytes, list[Extent]]


def build_image(tree: Tree, contents: Contents) -> Image:
    """Put each file of `tree` on a device, hard links once, and write the image."""
    device = bytearray()
    extents: dict[bytes, list[Extent]] = {}
    groups: set[int] = set()
    for entry in tree:
        if entry.kind is not EntryKind.FILE or entry.link_group in groups:
            continue
        if entry.link_group:
            groups.add(entry.link_group)
        data = contents[entry.path]
        extents[entry.path] = []
        for offset, length in erofs_runs(len(data), data_runs(data)):
            extents[entry.path].append(Extent(offset, len(device), length))
            device += data[offset : offset + length]
            device += bytes(-len(device) % BLOCK_SIZE)
    return Image(write(tree, extents, len(device) // BLOCK_SIZE), bytes(device), extents)


def write(
    tree: Tree, extents: dict[bytes, list[Extent]] | None = None, device_blocks: int = 0
) -> bytes:
    """The bytes that `write_image` writes."""
    out = io.BytesIO()
    write_image(tree, extents or {}, device_blocks, out, uuid=UUID)
    return out.getvalue()
