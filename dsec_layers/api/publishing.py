"""The last step of making a layer: packed into the local store, then tagged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsec_layers.api.rows import LayerRow, layer_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.builder.pack import pack_layer
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.errors import InvalidInputError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.content import Source
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig


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
    with work_folder(bench.home.root, "pack") as work_dir:
        packed = pack_layer(
            source,
            kind=reference.kind,
            name=reference.name,
            store=bench.local,
            work_dir=work_dir,
            run=run,
            provenance=provenance,
            workers=workers,
            progress=progress,
            known=known,
        )
    descriptor = packed.manifest.descriptor()
    bench.local.tag(reference, descriptor)
    layer = MountLayer(descriptor, packed.manifest, packed.config, bench.local)
    return layer_row(layer, str(reference))


def check_name(reference: Reference) -> None:
    """Before any work is done: what is made gets a tag. Raises InvalidInputError for a digest."""
    if reference.digest is not None:
        raise InvalidInputError(
            f"{reference} names a digest, which follows from what is made",
            hint=f"write a tag, as in {reference.repository}:v1",
        )
