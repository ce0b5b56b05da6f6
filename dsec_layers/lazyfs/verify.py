"""Proves that what is mounted equals what was packed, in every field and byte.

For each layer, in this order: its blobs (verify_stored), what this node keeps of it (verify_local),
and its mount (verify_tree); then the overlay of all. Damage is collected, not raised, and what can
be put right from a good copy is put right and said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.lazyfs.cache import ChunkCache, default_limit_bytes
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.lazyfs.paths import Paths
from dsec_layers.lazyfs.report import Recorder, Report
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.lazyfs.verify_local import check_cache, check_image
from dsec_layers.lazyfs.verify_stored import check_stored
from dsec_layers.lazyfs.verify_tree import Progress, check_composed_tree, check_layer_tree
from dsec_layers.model.tree import Tree


def verify_stored(layers: Sequence[MountLayer], subject: str) -> Report:
    """Check the blobs of `layers` and nothing else; needs no privilege."""
    recorder = Recorder()
    for layer in layers:
        with recorder.prefixed(str(layer)):
            check_stored(layer, recorder)
    return Report(subject, tuple(recorder.checks))


def verify_mounted(
    layers: Sequence[MountLayer],
    subject: str,
    *,
    home: Path,
    manager: RootfsManager,
    progress: Progress = lambda _: None,
) -> Report:
    """Check everything about an environment of `layers`, lowest first; it is mounted for that.

    `progress` is told the bytes of each file that was read through a mount. Raises what mounting
    raises besides damage: CapabilityMissingError, DaemonError, NoSpaceError.
    """
    with contextlib.ExitStack() as held:
        verifier = _Verifier(home, manager, progress, held)
        trees = [verifier.check_layer(layer) for layer in layers]
        verifier.check_composed(layers, [tree for tree in trees if tree])
    return Report(subject, tuple(verifier.recorder.checks))


class _Verifier:
    """Layers stay mounted in `held`, so that their overlay finds what has been read already."""

    def __init__(
        self,
        home: Path,
        manager: RootfsManager,
        progress: Progress,
        held: contextlib.ExitStack,
    ) -> None:
        self.recorder = Recorder()
        self._held = held
        self._manager = manager
        self._progress = progress
        self._images = MetadataImages(home)
        home.mkdir(parents=True, exist_ok=True)
        self._cache = ChunkCache(Paths(home).chunks, default_limit_bytes(home))

    def check_layer(self, layer: MountLayer) -> Tree | None:
        """Check one layer; its tree as the kernel shows it, if it can be mounted."""
        with self.recorder.prefixed(str(layer)):
            table = check_stored(layer, self.recorder)
            check_image(layer, self._images, self.recorder)
            if table is not None:  # before anything is read, for reading mends the cache in silence
                check_cache(layer, table, self._cache, self.recorder)
            return self._check_mount(layer, table)

    def check_composed(self, layers: Sequence[MountLayer], trees: Sequence[Tree]) -> None:
        """Check the overlay of all layers, of which `trees` are known."""
        with self.recorder.check("composed tree") as findings:
            if len(trees) < len(layers):
                findings.problem("not every layer can be mounted")
                return
            with self._manager.mounted(layers, read_only=True) as rootfs:
                check_composed_tree(rootfs.target, trees, findings, self._progress)

    def _check_mount(self, layer: MountLayer, table: ChunkTable | None) -> Tree | None:
        with self.recorder.check("mounted tree") as findings:
            (folder,) = self._held.enter_context(self._manager.layer_dirs([layer]))
            with self._images.open(layer.digest) as image:
                return check_layer_tree(layer, folder, image, table, findings, self._progress)
        return None
