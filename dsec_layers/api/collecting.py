"""Making room in a store: what nobody needs goes."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator

import msgspec

from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.lazyfs.journal import Journal
from dsec_layers.lazyfs.rootlessmounts import RootlessMounts
from dsec_layers.model.blobs import Store
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import tagging
from dsec_layers.registry.collect import Rules, collect, collectable


class Freed(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or would go: blobs and their bytes, and the names of `steps` of builds.

    `young_bytes` in `young_blobs` nothing leads to either, but they are spared for now.
    """

    dry_run: bool
    steps: int
    blobs: int
    bytes: int
    young_blobs: int
    young_bytes: int


def gc(
    bench: Workbench,
    url: str | None = None,
    rules: Rules | None = None,
    *,
    steps_unused_s: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Freed:
    """Remove what nobody needs from the local store, or the one at `url`.

    Whatever is mounted on this machine is needed. Results of build steps that no build has used for
    `steps_unused_s` are untagged first. Raises CapabilityMissingError for a store that its own
    server collects, and as `registry.collect.collect`.
    """
    rules = rules or Rules()
    store = collectable(bench.store(url))
    steps = 0
    if steps_unused_s is not None:
        for reference in list(_unused_steps(store, steps_unused_s)):
            steps += 1
            if not rules.dry_run:
                with contextlib.suppress(NotFoundError):  # somebody else removed it
                    store.untag(reference)
    found = collect(store, rules, in_use=lambda: _mounted(bench), progress=progress)
    return Freed(
        dry_run=rules.dry_run,
        steps=steps,
        blobs=found.blobs,
        bytes=found.bytes,
        young_blobs=found.young_blobs,
        young_bytes=found.young_bytes,
    )


def _unused_steps(store: Store, unused_s: float) -> Iterator[Reference]:
    """Their tags are set again when they are used; one without a time is as old as can be."""
    limit = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=unused_s)
    for reference, target in store.tags(Kind.CACHE):
        if target.annotations.get(tagging.TIME_KEY, "") < limit.strftime(tagging.TIME_FORM):
            yield reference


def _mounted(bench: Workbench) -> Iterator[str]:
    for record in Journal(bench.home.run).records():
        for layer in record.layers:
            yield f"sha256:{layer.hex}"
    for mounted in RootlessMounts(bench.home.run).listed():
        yield from (f"sha256:{layer}" for layer in mounted.layers if mounted.served)
