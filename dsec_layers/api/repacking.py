"""Layers of which a store keeps much more than they use, packed anew under the same names.

The files stay the same to the byte, and so does the tree digest; the manifest names other packs, so
the layer digest is another one. Hence only tags can follow, one by one, if nobody moves them
meanwhile. What names the old digest goes on needing the old layer and its packs: other tags,
environments, layers that were built on it, signatures, pinned references.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import blake3
import msgspec
import zstandard

from dsec_layers.api.accounting import used_shares
from dsec_layers.chunks.constants import ZSTD_LEVEL
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.repack import repack as repack_chunks
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.errors import InvalidInputError
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model import canonical
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    OCI_INDEX,
    TABLE_TYPE,
    Descriptor,
    LayerManifest,
    Plain,
)
from dsec_layers.model.reference import Reference
from dsec_layers.registry import closure, leases, tagging
from dsec_layers.registry import layers as stored


class Repacked(msgspec.Struct, frozen=True, kw_only=True):
    """A tag before and after; the same digest when all its packs are used well enough.

    `dropped_bytes` are the packs that it does not need any more, `written_bytes` the new ones.
    """

    reference: str
    before: str
    after: str
    dropped_bytes: int
    written_bytes: int


def repack(
    store: Store, references: Sequence[Reference], work_dir: Path, below: float = 0.5
) -> list[Repacked]:
    """Write anew what these layers use of packs of which all tags together use less than `below`.

    `below` is a share from 0 to 1, `work_dir` an existing folder. Raises InvalidInputError for an
    environment or a reference without a tag, ConflictError when a tag has moved meanwhile,
    NotFoundError, CorruptError, StoreError or NoSpaceError.
    """
    for reference in references:
        target = store.resolve(reference)
        if not reference.tag or target.media_type == OCI_INDEX:
            raise InvalidInputError(
                f"{reference} is no tag of a layer",
                hint="repack the layers of an environment by their tags, then compose it again",
            )
    sparse = {digest for digest, share in used_shares(store).items() if share < below}
    return [_repacked(store, reference, sparse, work_dir) for reference in references]


def _repacked(
    store: Store, reference: Reference, sparse: Collection[str], work_dir: Path
) -> Repacked:
    found = store.tagged(reference)
    target = msgspec.structs.replace(found, annotations={})
    with (
        tempfile.TemporaryDirectory(prefix="repack-", dir=work_dir) as folder,
        leases.hold(store, closure.blobs(store, target), purpose="repack") as held,
    ):
        before = stored.load_layer(store, target)
        dropped = [pack for pack in before.manifest.packs if pack.digest in sparse]
        if not dropped:
            return _row(reference, target, target, (), ())
        sparse_at = {number for number, pack in enumerate(before.manifest.packs) if pack in dropped}
        after = rewritten(
            store,
            held,
            before,
            lambda table: [at for at, chunk in enumerate(table) if chunk.pack in sparse_at],
            Path(folder),
        )
        written = [pack for pack in after.packs if pack not in before.manifest.packs]
        held.check()
        builder = found.annotations.get(tagging.BUILDER_KEY, "")
        tagging.set_tag(store, reference, after.descriptor(), expected=target, builder=builder)
    return _row(reference, target, after.descriptor(), dropped, written)


def rewritten(
    store: Store,
    held: leases.Held,
    layer: stored.StoredLayer,
    moved: Callable[[ChunkTable], Iterable[int]],
    folder: Path,
) -> LayerManifest:
    """`layer` with the chunks that `moved` names, in that order, in packs of their own.

    It is whole in `store`, without a tag, and `held` takes it in. Raises NotFoundError,
    CorruptError, StoreError or NoSpaceError.
    """
    manifest, writer = layer.manifest, leases.LeasedWriter(store, held)
    table = decode_table(store.read(manifest.table), layer.config.table)

    def read(chunk: Chunk) -> bytes:
        data = store.read(manifest.packs[chunk.pack], chunk.pack_offset, chunk.stored_length)
        decode_chunk(data, chunk.length, chunk.digest)
        return data

    def publish(path: Path, pack: Descriptor) -> None:
        writer.put(pack, path, consume=True)

    packs, table = repack_chunks(table, manifest.packs, moved(table), read, folder, publish)
    plain = table.encode()
    packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(plain)
    digest = f"blake3:{blake3.blake3(plain).hexdigest()}"
    config = canonical.encode(
        msgspec.structs.replace(layer.config, table=Plain(len(plain), digest))
    )
    made = LayerManifest(
        config=Descriptor.of(config, CONFIG_TYPE),
        metadata=manifest.metadata,
        table=Descriptor.of(packed, TABLE_TYPE),
        packs=packs,
    )
    writer.put(made.table, packed)
    writer.put(made.config, config)
    writer.put(made.descriptor(), made.encode())
    return made


def _row(
    reference: Reference,
    before: Descriptor,
    after: Descriptor,
    dropped: Sequence[Descriptor],
    written: Sequence[Descriptor],
) -> Repacked:
    return Repacked(
        reference=str(reference),
        before=before.digest,
        after=after.digest,
        dropped_bytes=sum(pack.size for pack in dropped),
        written_bytes=sum(pack.size for pack in written),
    )
