"""What stands in manifests and indexes, ours and those of others: as much as a store must know."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""
    artifact_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest or index: `descriptor` points to it, `blobs` and `manifests` are what it names."""

    data: bytes
    descriptor: Descriptor
    blobs: tuple[Descriptor, ...]
    manifests: tuple[Descriptor, ...]

    @classmethod
    def parse(cls, data: bytes, media_type: str, *, what: str) -> Document:
        """Parse what a registry gave. `media_type` counts when it names none itself.

        Raises CorruptError.
        """
        found = canonical.decode(data, _Document, what=what)
        media_type = found.media_type or media_type
        descriptor = Descriptor(
            media_type, str(Digest.sha256(data)), len(data), artifact_type=found.artifact_type
        )
        named = (*found.layers, *([found.config] if found.config else ()))
        blobs = {blob.digest: blob for blob in named}
        return cls(data, descriptor, tuple(blobs.values()), found.manifests)


def is_manifest(blob: Descriptor) -> bool:
    """Whether a registry keeps it among its manifests."""
    return blob.media_type in (OCI_MANIFEST, OCI_INDEX)
