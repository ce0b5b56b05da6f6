"""What a build has made becomes a layer in the local store, without a tag.

Apart from `building`, because a build in which nothing has changed never comes here and need not
load the machinery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsec_layers.api import contents
from dsec_layers.api.dictionary import Dictionary
from dsec_layers.api.knownlayers import known_layer
from dsec_layers.api.parents import Parents
from dsec_layers.api.publishing import packed
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.request import BuildResult
from dsec_layers.chunks.memory import Before
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.leases import Held


def pack_result(
    bench: Workbench,
    held: Held,
    result: BuildResult,
    reference: Reference,
    provenance: Provenance,
    *,
    parents: Parents,
    chunks: Dictionary,
    before: Before | None,
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> MountLayer:
    """The layer of a result; `held` takes it in. Raises as `pack_layer`."""
    return packed(
        bench,
        held,
        result.source,
        reference,
        run=result.run,
        provenance=provenance,
        known=[*_below(bench, parents, result), *chunks.known(bench, result.source)],
        workers=workers,
        progress=progress,
        before=before,
    )


def _below(bench: Workbench, parents: Parents, result: BuildResult) -> Sequence[KnownLayer]:
    """The layers below, whose chunks need not be stored again.

    A base holds all that lies below it, so its small files meet in the same groups again; those of
    the others are looked for one by one.
    """
    if not result.parent_digest:
        return ()
    layers = parents.stack(result.parent_digest).layers
    if result.kind is Kind.BASE:
        return [KnownLayer(contents.table_of(layer), layer.manifest.packs) for layer in layers]
    return [known_layer(bench, layer, result.source) for layer in layers]
