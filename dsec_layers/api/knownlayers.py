"""What packing may take from a layer that is there already."""

from __future__ import annotations

from functools import partial

from dsec_layers.api import contents
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.borrowing import copied_up
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.content import Source


def known_layer(bench: Workbench, layer: MountLayer, source: Source) -> KnownLayer:
    """A layer whose chunks need not be stored again, with its small files that `source` repeats.

    Raises CorruptError, NotFoundError or StoreError.
    """
    table = contents.table_of(layer)
    with contents.opened(bench, [layer]) as (image,):
        held = copied_up(source, image, table, partial(contents.read_chunk, layer))
    return KnownLayer(table, layer.manifest.packs, held)
