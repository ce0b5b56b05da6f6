"""What an environment reads first, put together in packs of its own.

Only packs and chunk tables change: the device stays, and so do chunks, metadata and tree digest.
What a trace says of the old layers holds for the new ones too. What it does not name stays in the
packs where it is, shared with other layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dsec_layers.api import traces
from dsec_layers.api.repacking import rewritten
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.grouping import BATCH_BYTES
from dsec_layers.model.environment import Environment
from dsec_layers.model.manifest import OCI_INDEX, Descriptor, LayerManifest
from dsec_layers.model.reference import Reference
from dsec_layers.model.trace import LayerTrace, in_order, of_layers
from dsec_layers.registry import layers as stored
from dsec_layers.registry import leases, tagging


class RearrangedLayer(msgspec.Struct, frozen=True):
    """A layer before and after, and the bytes of the packs written for it."""

    layer: str
    before: str
    after: str
    written_bytes: int


class Rearranged(msgspec.Struct, frozen=True, kw_only=True):
    """What `reference`, the tag that was set, was and is, and the layers that were written."""

    reference: str
    before: str
    after: str
    written_bytes: int
    layers: tuple[RearrangedLayer, ...]


def rearrange(bench: Workbench, reference: Reference, name: Reference | None = None) -> Rearranged:
    """Write the layers of an environment anew, or one layer, by what is known of their accesses.

    The result is tagged `name`; without it the tag of `reference` moves, if nobody moves it
    meanwhile. Its trace is known at once. Raises NotFoundError when nothing is known or data is not
    in the local store, InvalidInputError, ConflictError, CorruptError, StoreError or NoSpaceError.
    """
    wanted = name or reference
    if not wanted.tag or wanted.digest is not None or wanted.kind is not reference.kind:
        raise InvalidInputError(
            f"{wanted} is no tag for what becomes of {reference}",
            hint=f"write --tag {reference.repository}:NAME",
        )
    with leases.hold(bench.local, purpose="repack") as held:
        stack = bench.held_stack(reference, held)
        parts = _parts(bench, stack)
        with work_folder(bench.home.root, "repack") as work:
            made = {part.layer: _rewrite(bench, held, part, work) for part in parts}
        after = _published(bench, held, stack, made)
        held.check()
        tagging.set_tag(bench.local, wanted, after, expected=False if name else stack.descriptor)
    moved = [msgspec.structs.replace(part, layer=_digest(made[part.layer])) for part in parts]
    traces.files(bench).add(of_layers(after.digest, moved))
    rows = tuple(_row(stack, part.layer, made[part.layer]) for part in parts)
    return Rearranged(
        reference=str(wanted),
        before=stack.descriptor.digest,
        after=after.digest,
        written_bytes=sum(row.written_bytes for row in rows),
        layers=rows,
    )


def _parts(bench: Workbench, stack: Stack) -> list[LayerTrace]:
    """What is known of the layers that can change: all of an environment, or the layer itself."""
    layers = [layer.descriptor.digest for layer in stack.layers]
    if stack.descriptor.media_type != OCI_INDEX:
        layers = [stack.descriptor.digest]
    parts = traces.parts(bench, stack.descriptor, layers)
    if not parts:
        raise NotFoundError(
            f"no accesses of {stack.reference} are known here",
            hint="`dsec-layers run` or `mount` it: what it reads first is recorded",
        )
    return parts


def _rewrite(bench: Workbench, held: leases.Held, part: LayerTrace, work: Path) -> LayerManifest:
    layer = stored.load_layer(bench.local, bench.by_digest(part.layer))
    return rewritten(bench.local, held, layer, lambda table: _order(table, part), work)


def _order(table: ChunkTable, part: LayerTrace) -> Iterator[int]:
    """The chunks of the trace in its order; those that are fetched at once in that of the device.

    So reads one after another find their chunks one after another.
    """
    batch: list[int] = []
    held = 0
    for _, index in in_order([part]):
        if index < len(table):
            batch.append(index)
            held += table[index].length
        if held >= BATCH_BYTES:
            yield from sorted(batch)
            batch, held = [], 0
    yield from sorted(batch)


def _published(
    bench: Workbench, held: leases.Held, stack: Stack, made: dict[str, LayerManifest]
) -> Descriptor:
    """What takes the place of the stack's own descriptor; an index is put into the store."""
    if stack.descriptor.media_type != OCI_INDEX:
        return made[stack.descriptor.digest].descriptor()
    before = bench.environment(stack.descriptor)
    layers = tuple(_replaced(layer, made.get(layer.digest)) for layer in before.layers)
    environment = Environment(layers, before.run)
    after = environment.descriptor()
    leases.LeasedWriter(bench.local, held).put(after, environment.encode())
    return after


def _replaced(layer: Descriptor, made: LayerManifest | None) -> Descriptor:
    if made is None:
        return layer
    carrying = made.descriptor().carrying(made.encode())
    return msgspec.structs.replace(carrying, annotations=layer.annotations)


def _digest(made: LayerManifest) -> str:
    return made.descriptor().digest


def _row(stack: Stack, digest: str, made: LayerManifest) -> RearrangedLayer:
    (layer,) = (each for each in stack.layers if each.descriptor.digest == digest)
    before: Sequence[Descriptor] = layer.manifest.packs
    written = sum(pack.size for pack in made.packs if pack not in before)
    return RearrangedLayer(str(layer), digest, _digest(made), written)
