"""Proof that what is mounted is what was packed."""

from __future__ import annotations

from collections.abc import Callable

from dsec_layers.api.managing import manager
from dsec_layers.api.workbench import Workbench
from dsec_layers.lazyfs.report import Report
from dsec_layers.lazyfs.verify import verify_mounted, verify_stored
from dsec_layers.model.reference import Reference


def verify(
    bench: Workbench,
    reference: Reference,
    *,
    stored_only: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Check every blob, chunk, cache entry, and every field and byte of the mounted trees.

    With `stored_only` just the blobs, which needs no root. Damage is in the report; raises
    NotFoundError, or CorruptError when manifest or config cannot even be read, and what mounting
    raises.
    """
    stack = bench.stack(reference)
    if stored_only:
        return verify_stored(stack.layers, str(reference))
    return verify_mounted(
        stack.layers,
        str(reference),
        home=bench.home.root,
        manager=manager(bench),
        progress=progress,
    )
