"""What is read from further stores while it is mounted, kept there by a lease."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.errors import NotFoundError, StoreError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.blobs import Store
from dsec_layers.model.reference import Reference
from dsec_layers.registry import leases, standing

_WORKERS: Final = 8


@contextlib.contextmanager
def secured(bench: Workbench, reference: Reference) -> Iterator[Stack]:
    """What `reference` stands for, none of which a collector removes during the block.

    A mount made in it is safe afterwards too: the journal stands for it here, and a lease that the
    daemon renews stands for it in other stores. Raises NotFoundError,
    SignatureError, CorruptError or StoreError.
    """
    with leases.hold(bench.local, purpose="mount") as held:
        stack = bench.held_stack(reference, held)
        bench.check_packs(stack.layers)
        lend_remotes(bench, stack)
        yield stack


def lend_remotes(bench: Workbench, stack: Stack) -> None:
    """Let no collector remove what `stack` would read from the further stores.

    Then it is asked whether it is still there. Not all of this is done again within a moment, nor
    is it asked for what has just come from where no lease can be had. A store that cannot be
    reached is not waited for: what is read may be cached here. Raises NotFoundError when no store
    has a layer any more.
    """
    layers = [layer.digest.hex for layer in stack.layers]
    lent_as = f"lent {' '.join(layers)}"  # the lease lasts much longer than what is kept in mind
    if not bench.stores or lent_as in bench.lately:
        return
    away = [layer for layer in stack.layers if not _is_local(bench, layer)]
    if not away:
        return
    lent = [_lent(store, layers, stack) for store in bench.remotes]
    if not any(lent):
        away = [layer for layer in away if layer.descriptor.digest not in bench.lately]
    _find(bench, away)
    found = [layer.descriptor.digest for layer in away]
    bench.lately.note([*found, lent_as] if all(lent) else found)


def _lent(store: Store, layers: Sequence[str], stack: Stack) -> bool:
    """Whether a lease stands in the store; False too where it cannot be reached."""
    with contextlib.suppress(StoreError):
        return standing.lend(store, layers, stack.blobs)
    return False


def _find(bench: Workbench, layers: Sequence[MountLayer]) -> None:
    """Raises NotFoundError when one is in none of the further stores."""
    if not layers:
        return
    with ThreadPoolExecutor(_WORKERS, "lend") as pool:
        found = list(pool.map(lambda layer: _anywhere(bench.remotes, layer), layers))
    for layer, there in zip(layers, found, strict=True):
        if not there:
            raise NotFoundError(
                f"the data of {layer} is neither here nor in {', '.join(bench.stores)}",
                hint="it may just have been collected there: push it again",
            )


def _is_local(bench: Workbench, layer: MountLayer) -> bool:
    return all(bench.local.has(pack) for pack in layer.manifest.packs)


def _anywhere(stores: Sequence[Store], layer: MountLayer) -> bool:
    """Whether a store has the manifest, which goes before any pack; in doubt it has."""
    for store in stores:
        try:
            if store.has(layer.descriptor):
                return True
        except StoreError:
            return True
    return False
