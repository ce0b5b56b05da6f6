"""Layers in a store from trees with contents, and their devices as plain files.

The packer here is the obvious one: contents one after another, chunks of one size. What it makes
obeys the formats, so it stands beside the real one as a second opinion.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import blake3
import msgspec
import zstandard

from dsec_layers.chunks.frame import chunk_digest, decode_chunk, encode_chunk
from dsec_layers.chunks.pack import PackWriter
from dsec_layers.chunks.table import Chunk, ChunkTable, PackRef
from dsec_layers.erofs.planning import Extent
from dsec_layers.erofs.writer import write_image
from dsec_layers.lazyfs.devices import Device
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model import canonical
from dsec_layers.model.blobs import BlobReader, Store
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    METADATA_TYPE,
    TABLE_TYPE,
    Descriptor,
    LayerConfig,
    LayerManifest,
    Plain,
    Sizes,
)
from dsec_layers.model.reference import Kind
from dsec_layers.model.tree import BLOCK_SIZE, Entry, EntryKind, Tree
from tests.support.trees import Contents, content_digest, data_runs

CHUNK_BYTES = 64 << 10


def file_tree(files: dict[bytes, bytes]) -> tuple[Tree, Contents]:
    """A tree of plain files with these contents, and the directories they need."""
    entries = {}
    for path, data in files.items():
        parent = path
        while parent := parent.rpartition(b"/")[0]:
            entries[parent] = Entry(path=parent, kind=EntryKind.DIRECTORY, mode=0o755)
        entries[path] = Entry(
            path=path,
            kind=EntryKind.FILE,
            mode=0o644,
            size=len(data),
            digest=content_digest(data),
        )
    return Tree.of(entries.values()), dict(files)


def pack_tree(
    tree: Tree,
    contents: Contents,
    store: Store,
    work_dir: Path,
    *,
    kind: Kind = Kind.BASE,
    name: str = "t",
) -> MountLayer:
    """Pack a tree whose digests are filled in, and put all blobs into `store`."""
    device, extents = bytearray(), {}
    for entry in tree:
        if entry.kind is EntryKind.FILE:
            extents[entry.path] = _place(device, contents[entry.path])
    packs, table = _pack(bytes(device), store, work_dir)
    out = io.BytesIO()
    write_image(
        tree, extents, len(device) // BLOCK_SIZE, out, uuid=bytes.fromhex(tree.digest().hex)[:16]
    )
    config = LayerConfig(
        kind=kind,
        name=name,
        tree_digest=str(tree.digest()),
        sizes=Sizes(
            entries=len(tree),
            files=len(extents),
            content_bytes=sum(entry.size for entry in tree),
            device_bytes=len(device),
            chunks=len(table),
        ),
        metadata=_plain(out.getvalue()),
        table=_plain(table.encode()),
    )
    manifest = LayerManifest(
        config=Descriptor.of(b"", CONFIG_TYPE),
        metadata=_put(store, zstandard.compress(out.getvalue()), METADATA_TYPE),
        table=_put(store, zstandard.compress(table.encode()), TABLE_TYPE),
        packs=packs,
    )
    return store_layer(store, config, manifest)


def store_layer(store: Store, config: LayerConfig, manifest: LayerManifest) -> MountLayer:
    """The layer of the blobs in `manifest` with another config."""
    config_blob = _put(store, canonical.encode(config), CONFIG_TYPE)
    manifest = msgspec.structs.replace(manifest, config=config_blob)
    store.put(manifest.descriptor(), manifest.encode())
    return MountLayer(manifest.descriptor(), manifest, config, store, (store.url,))


def read_device(layer: MountLayer, blobs: BlobReader) -> bytes:
    """The whole device, from the packs."""
    table = ChunkTable.decode(zstandard.decompress(blobs.read(layer.manifest.table)))
    return b"".join(
        decode_chunk(
            blobs.read(layer.manifest.packs[chunk.pack], chunk.pack_offset, chunk.stored_length),
            chunk.length,
            chunk.digest,
        )
        for chunk in table
    )


class LocalDevices:
    """Devices as whole files in a folder; remembers what is attached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.attached: set[str] = set()

    def attach(self, layers: Sequence[MountLayer]) -> list[Device]:
        return [self.attach_one(layer) for layer in layers]

    def attach_one(self, layer: MountLayer) -> Device:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / layer.digest.hex
        if not path.exists():
            aside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            aside.write_bytes(read_device(layer, layer.blobs))
            with contextlib.suppress(FileExistsError):  # a mounted device is never replaced
                os.link(aside, path)
            aside.unlink()
        self.attached.add(layer.digest.hex)
        return Device(path, path.stat().st_size)

    def detach(self, digests: Collection[Digest]) -> None:
        for digest in digests:
            self.attached.discard(digest.hex)
            (self._folder / digest.hex).unlink(missing_ok=True)

    def served(self) -> set[str]:
        return set(self.attached)


def _place(device: bytearray, data: bytes) -> list[Extent]:
    extents = []
    for offset, length in data_runs(data):
        extents.append(Extent(offset, len(device), length))
        device += data[offset : offset + length] + bytes(-length % BLOCK_SIZE)
    return extents


def _pack(device: bytes, store: Store, work_dir: Path) -> tuple[tuple[Descriptor, ...], ChunkTable]:
    if not device:
        return (), ChunkTable((), ())
    path = work_dir / "pack"
    writer, chunks = PackWriter(path), []
    for start in range(0, len(device), CHUNK_BYTES):
        plain = device[start : start + CHUNK_BYTES]
        stored, digest = encode_chunk(plain), chunk_digest(plain)
        at = writer.append(digest, len(plain), stored)
        chunks.append(Chunk(start, at, len(plain), len(stored), 0, digest))
    pack = writer.finish()
    store.put(pack, path, consume=True)
    ref = PackRef(bytes.fromhex(pack.parsed_digest.hex), pack.size)
    return (pack,), ChunkTable((ref,), chunks)


def _plain(data: bytes) -> Plain:
    return Plain(len(data), f"blake3:{blake3.blake3(data).hexdigest()}")


def _put(store: Store, data: bytes, media_type: str) -> Descriptor:
    blob = Descriptor.of(data, media_type)
    store.put(blob, data)
    return blob
