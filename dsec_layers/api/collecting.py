"""Making room in a store: what nobody needs goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsec_layers.api.workbench import Workbench
from dsec_layers.lazyfs.journal import Journal
from dsec_layers.registry.collect import Collected, Rules, collect, collectable


def gc(
    bench: Workbench,
    url: str | None = None,
    rules: Rules | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Collected:
    """Remove what nobody needs from the local store, or the one at `url`.

    Whatever is mounted on this machine is needed. Raises CapabilityMissingError for a store that
    its own server collects, and as `registry.collect.collect`.
    """
    store = collectable(bench.store(url))
    return collect(store, rules or Rules(), in_use=lambda: _mounted(bench), progress=progress)


def _mounted(bench: Workbench) -> Iterator[str]:
    for record in Journal(bench.home.run).records():
        for layer in record.layers:
            yield f"sha256:{layer.hex}"
