"""The last step of making a layer: packed into the local store, then tagged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dsec_layers.api.rows import LayerRow, layer_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.errors import InvalidInputError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.content import Source
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.registry import leases, tagging

if TYPE_CHECKING:
    from dsec_layers.chunks.memory import Before
    from dsec_layers.chunks.packs import KnownLayer


def publish(
    bench: Workbench,
    source: Source,
    reference: Reference,
    *,
    run: RunConfig,
    provenance: Provenance,
    known: Sequence[KnownLayer] = (),
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> LayerRow:
    """Pack `source` as `reference` and tag it when it is whole. Raises as `pack_layer`."""
    with leases.hold(bench.local, purpose="build") as held:
        layer = packed(
            bench,
            held,
            source,
            reference,
            run=run,
            provenance=provenance,
            known=known,
            workers=workers,
            progress=progress,
        )
        return tagged(bench, held, layer, reference)


def packed(
    bench: Workbench,
    held: leases.Held,
    source: Source,
    reference: Reference,
    *,
    run: RunConfig,
    provenance: Provenance,
    known: Sequence[KnownLayer] = (),
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    before: Before | None = None,
) -> MountLayer:
    """The first half of `publish`: the layer is whole in the local store, without a tag.

    `held`, a lease on that store, takes it in.
    """
    from dsec_layers.builder.pack import pack_layer  # a tag alone needs none of it

    with work_folder(bench.home.root, "pack") as work_dir:
        made = pack_layer(
            source,
            kind=reference.kind,
            name=reference.name,
            store=leases.LeasedWriter(bench.local, held),
            work_dir=work_dir,
            run=run,
            provenance=provenance,
            workers=workers,
            progress=progress,
            known=known,
            before=before,
        )
    return MountLayer(made.manifest.descriptor(), made.manifest, made.config, bench.local)


def tagged(
    bench: Workbench, held: leases.Held, layer: MountLayer, reference: Reference
) -> LayerRow:
    """The second half of `publish`. Raises BusyError when the lease could not be renewed."""
    held.check()
    tagging.set_tag(bench.local, reference, layer.descriptor)
    return layer_row(layer, str(reference))


def check_name(reference: Reference) -> None:
    """Before any work is done: what is made gets a tag. Raises InvalidInputError for a digest."""
    if reference.digest is not None:
        raise InvalidInputError(
            f"{reference} names a digest, which follows from what is made",
            hint=f"write a tag, as in {reference.repository}:v1",
        )
