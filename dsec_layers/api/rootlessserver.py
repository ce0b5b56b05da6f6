"""The process behind a rootless mount: it composes the layers, mounts, and serves until the end.

It needs no privilege: the tree is put together from the layers' metadata by our own reader, and
data comes by way of the same cache, fetching and checks as in the daemon of root.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.api import contents
from dsec_layers.api.lending import secured
from dsec_layers.api.opened import composition
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import CorruptError, DsecError
from dsec_layers.lazyfs.cache import ChunkCache, default_limit_bytes
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.journal import Owner
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.loading import with_table
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.paths import Paths
from dsec_layers.lazyfs.rootlessmounts import RootlessMount, RootlessMounts
from dsec_layers.lazyfs.service import Options
from dsec_layers.lazyfs.settings import tuned
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.lazyfs.streams import Share, StreamLimits
from dsec_layers.lazyfs.targets import check_place
from dsec_layers.lazyfs.treefiles import TreeFiles
from dsec_layers.lazyfs.treefs import TreeFs
from dsec_layers.lazyfs.treenodes import TreeNodes
from dsec_layers.linux import fusermount, procinfo, syscalls
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import BLOCK_SIZE, Tree
from dsec_layers.registry import standing
from dsec_layers.registry.urls import open_store

_SCAN_EVERY_S = 600.0
_ENDING_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to mount where, under which id; `name` is for people."""

    id: str
    reference: Reference
    name: str
    target: Path
    made_target: bool


def serve(
    bench: Workbench, wanted: Wanted, stop: threading.Event, ready: Callable[[Stack], object]
) -> None:
    """Mount and serve until it is unmounted or `stop` is set; then it is unmounted here.

    `ready` is called when it is mounted. What still uses the mount when it is stopped gets errors.
    Raises as `rootless.mount`.
    """
    os.umask(0o077)
    syscalls.one_heap()
    Paths(bench.home.root).create()
    mounts = RootlessMounts(bench.home.run)
    with contextlib.ExitStack() as closing:
        with secured(bench, wanted.reference) as stack:
            images = closing.enter_context(contents.opened(bench, stack.layers))
            nodes, files = _tree(bench, stack, images, stop)
            record, fd = _mount(bench, wanted, stack, mounts)
        closing.callback(mounts.drop, record)
        treefs = TreeFs(fd, nodes, files)
        closing.callback(_end, record, treefs)
        treefs.start()
        _beside(stop, _watch, treefs)
        _beside(stop, _renew, bench, stack)
        _log.info("%s is mounted on %s", wanted.name, wanted.target)
        ready(stack)
        stop.wait()


def _beside(stop: threading.Event, work: Callable[..., None], *given: object) -> None:
    threading.Thread(target=work, args=(stop, *given), name=work.__name__, daemon=True).start()


def _tree(
    bench: Workbench, stack: Stack, images: Sequence[ErofsImage], stop: threading.Event
) -> tuple[TreeNodes, TreeFiles]:
    """What the layers show together, and the way to its data."""
    options = tuned(Options(), os.environ)
    folder = bench.home.chunks
    cache = ChunkCache(folder, options.cache_limit_bytes or default_limit_bytes(folder))
    _beside(stop, _keep_limit, cache)
    lanes = Lanes(open_store, options.store)
    memory = MemoryChunks(options.memory_limit_bytes)
    fetcher = Fetcher(cache, memory, lanes, options.fetch)
    devices, share = [], Share(StreamLimits())
    for layer, image in zip(stack.layers, images, strict=True):
        served = with_table(layer, StoreChain(layer.stores, lanes, Counters()))
        devices.append(LayerDevice(served, fetcher, share=share))
        if devices[-1].size_bytes < image.device_blocks * BLOCK_SIZE:
            raise CorruptError(f"the chunks of {layer} are less than its metadata points into")
    composed = composition([Tree.of(image.walk()) for image in images])
    nodes = TreeNodes(composed.values(), privileged=os.geteuid() == 0)
    return nodes, TreeFiles(devices, lambda layer, path: images[layer].extents(path))


def _mount(
    bench: Workbench, wanted: Wanted, stack: Stack, mounts: RootlessMounts
) -> tuple[RootlessMount, int]:
    record = RootlessMount(
        id=wanted.id,
        name=wanted.name,
        target=str(wanted.target),
        layers=tuple(layer.digest.hex for layer in stack.layers),
        server=Owner.current(),
        boot=procinfo.boot_id(),
        made_target=wanted.made_target,
    )
    with mounts.locked():
        check_place(wanted.target, bench.home.root)
        mounts.put(record)
        try:
            return record, fusermount.mount(wanted.target, record.source)
        except BaseException:
            mounts.drop(record)
            raise


def _end(record: RootlessMount, treefs: TreeFs) -> None:
    """Unmount, unless somebody has; users that do not let go in time lose it with the process."""
    if record.mounted:
        try:
            fusermount.unmount(Path(record.target), lazy=True)
        except DsecError as error:
            _log.warning("%s", error.message)
    treefs.join(_ENDING_S)
    _log.info("%s ends", record.target)


def _watch(stop: threading.Event, treefs: TreeFs) -> None:
    treefs.join()
    stop.set()


def _keep_limit(stop: threading.Event, cache: ChunkCache) -> None:
    """Other processes of this home fill the same cache, so what is in it is counted again."""
    cache.sweep()
    while not stop.is_set():
        cache.scan()
        stop.wait(_SCAN_EVERY_S)


def _renew(stop: threading.Event, bench: Workbench, stack: Stack) -> None:
    """The lease on the further stores is renewed as the daemon does it for mounts of root."""
    layers = [layer.digest.hex for layer in stack.layers]
    while not stop.wait(standing.RENEW_EVERY_S):
        for store in bench.remotes:
            try:
                standing.renew(store, layers)
            except DsecError as error:
                _log.warning("the lease at %s is not renewed: %s", store.url, error)
