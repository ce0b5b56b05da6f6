"""The results of steps that lie in a store: what they take, and making room."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dsec_layers.api.stepstores import TITLE, reference
from dsec_layers.builder.kept import Kept
from dsec_layers.errors import DsecError, NotFoundError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import layers, tagging
from dsec_layers.registry.urls import open_store

_WORKERS: Final = 16


def kept(url: str) -> list[Kept]:
    """All results in the store at `url`, what was used last first.

    The size is that of the blobs, which others may use too. A damaged one has no size and no title.
    Where a store does not know when something was used, it counts as used now. Raises
    InvalidInputError, CorruptError (of a tag) or StoreError.
    """
    store = open_store(url)
    now_s = time.time()
    with ThreadPoolExecutor(_WORKERS, "list") as pool:
        found = list(
            pool.map(lambda pair: _kept(store, *pair, now_s=now_s), store.tags(Kind.CACHE))
        )
    return sorted(found, key=lambda one: (-one.used_s, one.name))


def remove(url: str, chosen: Sequence[Kept]) -> list[Kept]:
    """Remove the tags of results; returns those that are gone. `gc` removes their blobs later.

    Raises StoreError.
    """
    return list(_removed(open_store(url), chosen))


def _removed(store: Store, chosen: Sequence[Kept]) -> Iterator[Kept]:
    for one in chosen:
        try:
            tagging.remove_tag(store, reference(one.name))
        except NotFoundError:  # somebody else was faster
            continue
        yield one


def _kept(store: Store, name: Reference, target: Descriptor, *, now_s: float) -> Kept:
    used_s = now_s
    if said := target.annotations.get(tagging.TIME_KEY):
        used_s = datetime.datetime.fromisoformat(said).timestamp()
    try:
        layer = layers.load_layer(store, target)
    except DsecError:
        return Kept("step", name.tag, "", 0, used_s)
    size = target.size + sum(blob.size for blob in layer.manifest.blobs)
    return Kept("step", name.tag, layer.config.provenance.inputs.get(TITLE, ""), size, used_s)
