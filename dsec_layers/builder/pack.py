"""From a Source to a layer in a store: contents read, laid out, cut, compressed and published.

The calling thread reads every file once, in path order. Other threads hash and compress chunks and
publish packs meanwhile, then EROFS metadata, table and config. The manifest follows when all of
them are there, so that nothing is ever visible before it is whole. The same source gives the same
bytes, however many threads work.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import blake3
import msgspec
import zstandard

from dsec_layers.builder.borrowing import held_contents, settle
from dsec_layers.builder.contents import ContentPacker, Progress
from dsec_layers.chunks.chunker import Chunker
from dsec_layers.chunks.constants import MIB, ZSTD_LEVEL
from dsec_layers.chunks.frames import LostFrameError, StoredFrames
from dsec_layers.chunks.memory import Before, Files, Memory
from dsec_layers.chunks.packs import KnownLayer, PackSet
from dsec_layers.chunks.pipeline import ChunkPipeline
from dsec_layers.chunks.recall import Recall
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.erofs.writer import write_image
from dsec_layers.errors import DISK_FULL, NoSpaceError
from dsec_layers.model import canonical
from dsec_layers.model.blobs import BlobWriter
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    METADATA_TYPE,
    TABLE_TYPE,
    Descriptor,
    LayerConfig,
    LayerManifest,
    Plain,
    Provenance,
    Sizes,
)
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import BLOCK_SIZE, EntryKind, Tree

T = TypeVar("T")
_PUBLISHERS: Final = 4


class PackedLayer(msgspec.Struct, frozen=True):
    """A layer that lies whole in its store. `tree` has the content digests of all files."""

    manifest: LayerManifest
    config: LayerConfig
    tree: Tree


def pack_layer(
    source: Source,
    *,
    kind: Kind,
    name: str,
    store: BlobWriter,
    work_dir: Path,
    run: RunConfig = RunConfig(),  # noqa: B008 (frozen)
    provenance: Provenance = Provenance(),  # noqa: B008 (frozen)
    workers: int | None = None,
    progress: Progress | None = None,
    known: Sequence[KnownLayer] = (),
    before: Before | None = None,
) -> PackedLayer:
    """Pack `source` and put its blobs and its manifest into `store`; no tag is set.

    `work_dir` is an existing folder, best on the disk of the store, where packs lie until they are
    published; nothing is left in it. `workers` is the number of compressing threads, by default one
    a core. `progress` is called with the content bytes read since its last call. Chunks that packs
    of `known` layers hold are referred to instead of stored (`chunks.packs` has the rule). What is
    known of an earlier version is not read or compressed again; it is told what is known now.

    Raises CorruptError when a file changes meanwhile or has another digest than its entry says,
    CapabilityMissingError when one may not be read, InvalidInputError for a tree that the formats
    cannot hold, NoSpaceError, StoreError, OSError.
    """
    inputs = (source, kind, name, store, work_dir, run, provenance)
    attempt = partial(_attempt, *inputs, workers, progress, known, before)
    try:
        try:
            return attempt(before.frames if before else None)
        except LostFrameError:
            return attempt(None)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise NoSpaceError(f"no space left for packing in {work_dir}") from error
        raise


def _attempt(
    source: Source,
    kind: Kind,
    name: str,
    store: BlobWriter,
    work_dir: Path,
    run: RunConfig,
    provenance: Provenance,
    workers: int | None,
    progress: Progress | None,
    known: Sequence[KnownLayer],
    before: Before | None,
    frames: StoredFrames | None,
) -> PackedLayer:
    """See `pack_layer`. Raises LostFrameError when one of `frames` is lost meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="pack-", dir=work_dir) as folder,
        _Publisher(store) as publisher,
        PackSet(Path(folder), publisher.put_later, known, frames) as packs,
        ChunkPipeline(packs, workers, frames) as pipeline,
    ):
        held = held_contents(known)
        files = Files(before.memory.files) if before else None
        recall = Recall(before.memory.recipes, pipeline) if before else None
        chunker = Chunker(pipeline.emit, recall)
        contents = ContentPacker(source, chunker, progress, held, files)
        tree = contents.run()
        settle(contents, pipeline, packs)
        tree_digest = tree.digest()
        metadata = _metadata(tree, tree_digest, contents, Path(folder) / "metadata")
        pipeline.drain()
        pack_blobs, table = packs.finish()
        publisher.put_later(metadata.data, metadata.blob)
        for repeated in packs.repeated:
            publisher.put_later(repeated.stream(), repeated.pack)
        encoded = table.encode()
        table_part = _part(io.BytesIO(encoded), len(encoded), TABLE_TYPE)
        publisher.put_later(table_part.data, table_part.blob)
        config = LayerConfig(
            kind=kind,
            name=name,
            tree_digest=str(tree_digest),
            sizes=_sizes(tree, table),
            metadata=metadata.plain,
            table=table_part.plain,
            run=run,
            provenance=provenance,
        )
        config_bytes = canonical.encode(config)
        config_blob = Descriptor.of(config_bytes, CONFIG_TYPE)
        publisher.put_later(config_bytes, config_blob)
        if before and files and recall:
            chunks = ((chunk.digest, chunk.length) for chunk in table)
            publisher.do_later(before.remember, Memory(files.seen, recall.made(chunks)))
        publisher.wait()
        manifest = LayerManifest(config_blob, metadata.blob, table_part.blob, pack_blobs)
        store.put(manifest.descriptor(), manifest.encode())
        return PackedLayer(manifest, config, tree)


class _Publisher:
    """Puts blobs into the store in the background, several at once: most wait for the disk."""

    def __init__(self, store: BlobWriter) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(_PUBLISHERS, "publish")
        self._waiting: list[Future[object]] = []

    def __enter__(self) -> _Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def put_later(self, source: Path | bytes | Iterator[bytes], blob: Descriptor) -> None:
        self._waiting.append(self._pool.submit(self._store.put, blob, source, consume=True))

    def do_later(self, work: Callable[[T], object], given: T) -> None:
        self._waiting.append(self._pool.submit(work, given))

    def wait(self) -> None:
        for future in self._waiting:
            future.result()


class _Part(msgspec.Struct, frozen=True):
    """A compressed part of the layer: its blob, what it is before compression, and its bytes."""

    blob: Descriptor
    plain: Plain
    data: bytes


def _part(stream: BinaryIO, size: int, media_type: str) -> _Part:
    hasher = blake3.blake3()
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=size)
    pieces: list[bytes] = []
    while data := stream.read(MIB):
        hasher.update(data)
        pieces.append(compressor.compress(data))
    compressed = b"".join((*pieces, compressor.flush()))
    plain = Plain(size, str(Digest("blake3", hasher.hexdigest())))
    return _Part(Descriptor.of(compressed, media_type), plain, compressed)


def _metadata(tree: Tree, tree_digest: Digest, contents: ContentPacker, path: Path) -> _Part:
    """The EROFS image, written to `path` first because that of many files is large."""
    uuid = bytes.fromhex(tree_digest.hex)[:16]
    with path.open("w+b") as file:
        write_image(tree, contents.extents, contents.device_bytes // BLOCK_SIZE, file, uuid=uuid)
        size = file.tell()
        file.seek(0)
        return _part(file, size, METADATA_TYPE)


def _sizes(tree: Tree, table: ChunkTable) -> Sizes:
    sizes = [entry.size for entry in tree.entries if entry.kind is EntryKind.FILE]
    return Sizes(
        entries=len(tree),
        files=len(sizes),
        content_bytes=sum(sizes),
        device_bytes=table.device_bytes,
        chunks=len(table),
    )
