"""A document about a layer or environment: an OCI image manifest whose `subject` is that.

It is found from its subject in every store (`Referrers`), so what it says can be added to a layer
without changing the layer's digest. What it says is in its `data`, blobs of their own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dsec_layers.errors import CorruptError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor

EMPTY: Final = b"{}"
EMPTY_BLOB: Final = Descriptor.of(EMPTY, "application/vnd.oci.empty.v1+json")
ARTIFACT_PREFIX: Final = "application/vnd.dsec."


class _Document(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    schema_version: int
    media_type: str
    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor


class Attachment(msgspec.Struct, frozen=True):
    """`artifact_type` says what `data` are; `subject` is the manifest or index they are about."""

    artifact_type: str
    subject: Descriptor
    data: tuple[Descriptor, ...]

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """All blobs besides the manifest itself, to be pushed before it."""
        return (*self.data, EMPTY_BLOB)

    def encode(self) -> bytes:
        """The canonical JSON. Annotations of the subject are left out: they are of where it was."""
        subject = msgspec.structs.replace(self.subject, annotations={})
        return canonical.encode(
            _Document(2, OCI_MANIFEST, self.artifact_type, EMPTY_BLOB, self.data, subject)
        )

    def descriptor(self) -> Descriptor:
        """Points to the manifest."""
        blob = Descriptor.of(self.encode(), OCI_MANIFEST)
        return msgspec.structs.replace(blob, artifact_type=self.artifact_type)

    @classmethod
    def decode(cls, data: bytes) -> Attachment:
        """Parse an attachment. Raises CorruptError when it is malformed or something else."""
        document = canonical.decode(data, _Document, what="attached manifest")
        if document.media_type != OCI_MANIFEST or document.config != EMPTY_BLOB:
            raise CorruptError(f"attached manifest is something else: {document.media_type!r}")
        return cls(document.artifact_type, document.subject, document.layers)
