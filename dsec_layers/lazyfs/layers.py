"""What mounting needs to know of a layer."""

from __future__ import annotations

import msgspec

from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor, LayerConfig, LayerManifest


class MountLayer(msgspec.Struct, frozen=True):
    """A layer of which manifest and config are here and checked; its other blobs are in `blobs`.

    `descriptor` is the manifest's. `stores` are the URLs behind `blobs`, best first, for a process
    that has to open them itself. `reference` is for people.
    """

    descriptor: Descriptor
    manifest: LayerManifest
    config: LayerConfig
    blobs: BlobReader
    stores: tuple[str, ...] = ()
    reference: str = ""

    @property
    def digest(self) -> Digest:
        """The layer digest."""
        return self.descriptor.parsed_digest

    def __str__(self) -> str:
        name = self.reference or f"{self.config.kind.value}/{self.config.name}"
        return f"{name} ({self.digest.short})"
