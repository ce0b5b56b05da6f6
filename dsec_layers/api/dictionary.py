"""Layers that a new one may take chunks from, though it does not stand on them.

Which layers these are decides the digest, so they are named by the user and recorded in the
provenance of the new layer; what happens to be in a store is never used (decision 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.content import Source
from dsec_layers.model.reference import Reference
from dsec_layers.registry import layers as stored
from dsec_layers.registry.leases import Held

if TYPE_CHECKING:
    from dsec_layers.chunks.packs import KnownLayer


class Dictionary(msgspec.Struct, frozen=True):
    """The layers, first choice first, and `inputs` for the provenance."""

    layers: Sequence[MountLayer] = ()
    inputs: Mapping[str, str] = {}

    def known(self, bench: Workbench, source: Source) -> list[KnownLayer]:
        """What packing `source` may take from them: their chunks, and small files that it repeats.

        A small file that stayed as it was is found by its path, though its neighbours in a chunk
        have changed. Raises CorruptError, NotFoundError or StoreError.
        """
        from dsec_layers.api.knownlayers import known_layer  # a faster start for who packs nothing

        return [known_layer(bench, layer, source) for layer in self.layers]


def load(bench: Workbench, references: Sequence[Reference], held: Held) -> Dictionary:
    """The layers of `references`, in their order; those of an environment, lowest first.

    `held`, a lease on the local store, takes them in. Raises NotFoundError when one or its data is
    not in the local store, SignatureError, CorruptError or StoreError.
    """
    layers: list[MountLayer] = []
    inputs: dict[str, str] = {}
    for number, reference in enumerate(references, 1):
        target = bench.trusted(reference)
        inputs[f"chunk-dict {number}"] = target.digest
        for descriptor in stored.layer_descriptors(bench.reader, target):
            layer = bench.layer(descriptor)
            held.add((target, descriptor, *layer.manifest.blobs))
            for blob in (descriptor, layer.manifest.table, *layer.manifest.packs):
                if not bench.local.has(blob):
                    raise NotFoundError(
                        f"the data of {reference} is not in the local store",
                        hint=f"pull it first: dsec-layers pull {reference} URL",
                    )
            layers.append(layer)
    return Dictionary(layers, inputs)
