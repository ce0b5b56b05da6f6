"""Leases of mounts on the stores that they read from, which outlive the process that mounts.

    leases/mounted-<sha256 of the layers' digests>    as any lease, for a day

All nodes that have mounted the same layers share the note, whose contents follow from them; each
writes it again now and then while its mount is there, and the last one leaves it to expire.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from dsec_layers.errors import StoreError
from dsec_layers.model import canonical
from dsec_layers.model.collecting import is_collectable
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import condemned
from dsec_layers.registry.condemned import Timing
from dsec_layers.registry.leases import FOLDER, Lease

TTL_S: Final = 24 * 3600.0
RENEW_EVERY_S: Final = TTL_S / 8


def lend(
    store: object, layers: Sequence[str], blobs: Iterable[Descriptor], timing: Timing | None = None
) -> bool:
    """Let no collector of `store` remove `blobs` for a day, or until `renew` has said so again.

    `layers` are the hexadecimal digests of the mounted layers, lowest first. Returns when none is
    about to be removed; False where that cannot be had: a store that others collect, or that we may
    not write to. Raises StoreError when it cannot be read.
    """
    if not is_collectable(store):
        return False
    digests = frozenset(blob.digest for blob in blobs)
    lease = Lease(tuple(sorted(digests)), "mount", TTL_S)
    try:
        store.write_note(_name(layers), canonical.encode(lease))
    except StoreError:
        return False
    condemned.wait(store, digests, timing or Timing())
    return True


def renew(store: object, layers: Sequence[str]) -> None:
    """Write the lease of a mount again. Raises NotFoundError when there is none, or StoreError."""
    if is_collectable(store):
        name = _name(layers)
        store.write_note(name, store.read_note(name))


def _name(layers: Sequence[str]) -> str:
    return f"{FOLDER}/mounted-{hashlib.sha256(','.join(layers).encode()).hexdigest()}"
