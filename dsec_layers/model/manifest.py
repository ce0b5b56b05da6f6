"""The manifest of a layer.

An OCI image manifest in canonical JSON whose sha256 is the layer digest.

`config` describes the layer to people and programs; `layers` lists the EROFS metadata (zstd), the
chunk table (zstd) and each pack, in this order. The same bytes stand in every store, so the digest
is the same everywhere.
"""

from __future__ import annotations

import binascii
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind
from dsec_layers.model.residue import Residue
from dsec_layers.model.runconfig import RunConfig

OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
LAYER_ARTIFACT: Final = "application/vnd.dsec.layer.v1"
CONFIG_TYPE: Final = "application/vnd.dsec.layer.config.v1+json"
METADATA_TYPE: Final = "application/vnd.dsec.layer.metadata.v1.erofs+zstd"
TABLE_TYPE: Final = "application/vnd.dsec.layer.chunktable.v1+zstd"
PACK_TYPE: Final = "application/vnd.dsec.layer.pack.v1"
MAX_CARRIED_BYTES: Final = 16 << 10  # a manifest of a hundred packs


class Descriptor(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A pointer to a blob.

    Media type, `sha256:...` digest as a string (as JSON has it), size in bytes. `data` is the blob
    itself, in base64, where it is carried along to spare a request (`carried`).
    """

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}
    data: str = ""

    @classmethod
    def of(cls, data: bytes, media_type: str) -> Descriptor:
        """The descriptor of `data`."""
        return cls(media_type, str(Digest.sha256(data)), len(data))

    @property
    def parsed_digest(self) -> Digest:
        """The digest as a value. Raises InvalidInputError when malformed."""
        return Digest.parse(self.digest)

    @property
    def carried(self) -> bytes | None:
        """The blob, when it comes along; None too for one that is not what it should be."""
        try:
            data = binascii.a2b_base64(self.data, strict_mode=True)
        except ValueError:
            return None
        same = len(data) == self.size and Digest.sha256(data) == self.parsed_digest
        return data if data and same else None

    def carrying(self, data: bytes) -> Descriptor:
        """The same with the blob `data`, unless it is large."""
        if len(data) > MAX_CARRIED_BYTES:
            return self
        return msgspec.structs.replace(self, data=binascii.b2a_base64(data, newline=False).decode())

    @property
    def alone(self) -> Descriptor:
        """The same without the blob."""
        return msgspec.structs.replace(self, data="") if self.data else self


class Plain(msgspec.Struct, frozen=True):
    """A blob before compression: its size in bytes and its `blake3:...` digest."""

    size_bytes: int
    digest: str


class Sizes(msgspec.Struct, frozen=True):
    """Counts of a layer.

    `content_bytes` sums file sizes as `ls` shows them, `device_bytes` is what the device holds.
    """

    entries: int
    files: int
    content_bytes: int
    device_bytes: int
    chunks: int


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a layer comes from.

    `base` is the digest of the layer it was built on. `residue` tells what was left out of a layer
    that was made of a sandbox. No times, no host names.
    """

    source: str = ""
    layerfile_digest: str = ""
    inputs: dict[str, str] = {}
    base: str = ""
    source_date_epoch: int | None = None
    residue: Residue | None = None


class LayerConfig(msgspec.Struct, frozen=True):
    """The config blob of a layer. `tree_digest` is `blake3:...` over the canonical tree."""

    kind: Kind
    name: str
    tree_digest: str
    sizes: Sizes
    metadata: Plain
    table: Plain
    run: RunConfig = RunConfig()
    provenance: Provenance = Provenance()


class _Document(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    schema_version: int
    media_type: str
    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]


class LayerManifest(msgspec.Struct, frozen=True):
    """The parts of a layer, each a blob of its own."""

    config: Descriptor
    metadata: Descriptor
    table: Descriptor
    packs: tuple[Descriptor, ...]

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """All blobs in the order in which they are pushed: packs, table, metadata, config."""
        return (*self.packs, self.table, self.metadata, self.config)

    def encode(self) -> bytes:
        """The canonical JSON."""
        layers = (self.metadata, self.table, *self.packs)
        return canonical.encode(_Document(2, OCI_MANIFEST, LAYER_ARTIFACT, self.config, layers))

    def descriptor(self) -> Descriptor:
        """Points to the manifest itself; its digest is the layer digest."""
        data = self.encode()
        return Descriptor(
            OCI_MANIFEST, str(Digest.sha256(data)), len(data), artifact_type=LAYER_ARTIFACT
        )

    @classmethod
    def decode(cls, data: bytes) -> LayerManifest:
        """Parse a layer manifest. Raises CorruptError when it is malformed or not a layer's."""
        document = canonical.decode(data, _Document, what="layer manifest")
        types = [layer.media_type for layer in document.layers]
        if document.artifact_type != LAYER_ARTIFACT or document.config.media_type != CONFIG_TYPE:
            raise CorruptError(f"manifest is not a DSec layer but {document.artifact_type!r}")
        if types[:2] != [METADATA_TYPE, TABLE_TYPE] or set(types[2:]) - {PACK_TYPE}:
            raise CorruptError(f"layer manifest lists unexpected blobs: {types}")
        return cls(document.config, document.layers[0], document.layers[1], document.layers[2:])


def decode_config(data: bytes) -> LayerConfig:
    """Parse the config blob of a layer. Raises CorruptError."""
    return canonical.decode(data, LayerConfig, what="layer config")
