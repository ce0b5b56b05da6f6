"""Layers that stay mounted for a holder that is no process: the runtime of sandboxes.

The holder stacks overlays over the folders by himself. His name is in the journal, so a collector
spares the layers, the daemon serves them, and nobody's end takes them away but `release`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsec_layers.api.lending import lend_remotes
from dsec_layers.api.managing import manager
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig, merge
from dsec_layers.registry import leases
from dsec_layers.registry.leases import Held


class HeldLayers(msgspec.Struct, frozen=True):
    """Mounted layers, lowest first: their digests, the folders that show them, and how to run."""

    holder: str
    digests: tuple[str, ...]
    folders: tuple[Path, ...]
    run: RunConfig


def pinned(bench: Workbench, references: Sequence[Reference]) -> tuple[Reference, ...]:
    """The references bound to what they mean now.

    Raises NotFoundError, SignatureError, CorruptError or StoreError.
    """
    return tuple(
        reference.pinned(bench.trusted(reference).parsed_digest) for reference in references
    )


def holder_of(references: Sequence[Reference]) -> str:
    """A name for whoever holds just these pinned references, the same at any time."""
    digests = "\n".join(str(reference.digest) for reference in references)
    return hashlib.sha256(digests.encode()).hexdigest()[:32]


def hold(
    bench: Workbench,
    references: Sequence[Reference],
    holder: str,
    *,
    prefetch_bytes: int | None = None,
) -> HeldLayers:
    """Mount what `references` stand for until `release`.

    One may be an environment, or a layer with what it was built on; of several, each is a layer,
    the base first, then at most one workspace, then toolkits. `prefetch_bytes` is as for
    `managing.manager`. Raises InvalidInputError and what `mounting.mount` raises.
    """
    with leases.hold(bench.local, purpose="mount") as held:
        stack = _stack(bench, references, held)
        bench.check_packs(stack.layers)
        lend_remotes(bench, stack)
        folders = manager(bench, stack, prefetch_bytes).hold(stack.layers, holder)
    digests = tuple(str(layer.digest) for layer in stack.layers)
    return HeldLayers(holder, digests, folders, stack.run)


def release(bench: Workbench, holder: str) -> None:
    """Undo `hold`; nothing happens when nothing is held."""
    manager(bench).release(holder)


def holders(bench: Workbench) -> frozenset[str]:
    """Who holds layers now, on this boot."""
    return frozenset(manager(bench).held())


def _stack(bench: Workbench, references: Sequence[Reference], held: Held) -> Stack:
    first = bench.held_stack(references[0], held)
    if len(references) == 1:
        return first
    others = [bench.held_layer(reference, held) for reference in references[1:]]
    kinds = [layer.config.kind for layer in (*first.layers, *others)]
    ordered = sorted(kinds, key=_ORDER.index) if set(kinds) <= set(_ORDER) else []
    if kinds != ordered or kinds.count(Kind.BASE) != 1 or kinds.count(Kind.WORKSPACE) > 1:
        names = ", ".join(map(str, references))
        raise InvalidInputError(
            f"these make no environment: {names}",
            hint="name a base, then at most one workspace, then toolkits",
        )
    layers = (*first.layers, *others)
    return Stack(first.reference, first.descriptor, layers, merge(it.config.run for it in layers))


_ORDER = (Kind.BASE, Kind.WORKSPACE, Kind.TOOLKIT)
