"""An environment: an OCI image index that lists its layers, lowest first.

It has one base, at most one workspace and any number of toolkits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_INDEX, Descriptor
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import RunConfig

ENVIRONMENT_ARTIFACT: Final = "application/vnd.dsec.environment.v1"
KIND_KEY: Final = "dev.dsec.layer.kind"
REFERENCE_KEY: Final = "dev.dsec.layer.reference"
RUN_KEY: Final = "dev.dsec.environment.run"


class _Document(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    schema_version: int
    media_type: str
    artifact_type: str
    manifests: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}


class Environment(msgspec.Struct, frozen=True):
    """`layers` are manifest descriptors, lowest first, annotated with kind and reference.

    `run` is already merged.
    """

    layers: tuple[Descriptor, ...]
    run: RunConfig

    @classmethod
    def of(cls, layers: Sequence[tuple[Kind, str, Descriptor]], run: RunConfig) -> Environment:
        """Compose (kind, reference, manifest descriptor) triples, sorted by kind.

        Toolkits keep the caller's order.

        Raises InvalidInputError without exactly one base, with two workspaces, or with the same
        layer twice.
        """
        kinds = [kind for kind, _, _ in layers]
        if kinds.count(Kind.BASE) != 1:
            raise InvalidInputError(
                f"an environment needs exactly one base, got {kinds.count(Kind.BASE)}"
            )
        if kinds.count(Kind.WORKSPACE) > 1:
            raise InvalidInputError("an environment takes at most one workspace")
        if len({descriptor.digest for _, _, descriptor in layers}) != len(layers):
            raise InvalidInputError("the same layer is given twice")
        ordered = sorted(layers, key=lambda layer: layer[0].rank)
        return cls(tuple(_annotated(*layer) for layer in ordered), run)

    def encode(self) -> bytes:
        """The canonical JSON of the index."""
        annotations = {RUN_KEY: canonical.encode(self.run).decode()}
        return canonical.encode(
            _Document(2, OCI_INDEX, ENVIRONMENT_ARTIFACT, self.layers, annotations)
        )

    def descriptor(self) -> Descriptor:
        """Points to the index itself; its digest is the environment digest."""
        data = self.encode()
        return Descriptor(
            OCI_INDEX, str(Digest.sha256(data)), len(data), artifact_type=ENVIRONMENT_ARTIFACT
        )

    @classmethod
    def decode(cls, data: bytes) -> Environment:
        """Parse an environment.

        Raises CorruptError when it is malformed or another kind of index.
        """
        document = canonical.decode(data, _Document, what="environment")
        if document.artifact_type != ENVIRONMENT_ARTIFACT:
            raise CorruptError(f"index is not a DSec environment but {document.artifact_type!r}")
        run = canonical.decode(
            document.annotations.get(RUN_KEY, "{}").encode(), RunConfig, what="run configuration"
        )
        return cls(document.manifests, run)


def _annotated(kind: Kind, reference: str, descriptor: Descriptor) -> Descriptor:
    annotations = {KIND_KEY: kind.value, REFERENCE_KEY: reference}
    return msgspec.structs.replace(descriptor, annotations=annotations)
