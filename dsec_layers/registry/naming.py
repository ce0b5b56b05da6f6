"""What things are called in a store: the same names below a directory and in a bucket."""

from __future__ import annotations

from typing import Final

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.environment import ENVIRONMENT_ARTIFACT
from dsec_layers.model.manifest import (
    LAYER_ARTIFACT,
    OCI_INDEX,
    OCI_MANIFEST,
    PACK_TYPE,
    Descriptor,
)
from dsec_layers.model.reference import Kind, Reference

GENERIC_TYPE: Final = "application/octet-stream"
MAX_COMPONENT_BYTES: Final = 255


def blob_name(blob: Descriptor) -> str:
    """`packs/<hh>/<64 hex>` of a pack, `blobs/<hh>/<64 hex>` of all else.

    Raises InvalidInputError.
    """
    digest = blob.parsed_digest
    if digest.algorithm != "sha256":
        raise InvalidInputError(f"blobs are named by sha256, not {blob.digest}")
    folder = "packs" if blob.media_type == PACK_TYPE else "blobs"
    return f"{folder}/{digest.hex[:2]}/{digest.hex}"


def reference_name(reference: Reference) -> str:
    """`<kind>/<name>/@<tag>.json`, below `refs`. Raises InvalidInputError."""
    if not reference.tag:
        raise InvalidInputError(f"{reference} has no tag", hint="name a tag, as in base/debian:12")
    Reference.parse(str(reference))  # nothing but a well-formed name may become a path
    if max(map(len, reference.name.split("/"))) > MAX_COMPONENT_BYTES:
        raise InvalidInputError(
            f"a part of {reference.name!r} is longer than {MAX_COMPONENT_BYTES} characters"
        )
    return f"{reference.repository}/@{reference.tag}.json"


def manifest_at(reference: Reference, size: int) -> Descriptor:
    """The descriptor, of `size` bytes, that a digest without a tag stands for."""
    media_type, artifact = (
        (OCI_INDEX, ENVIRONMENT_ARTIFACT)
        if reference.kind is Kind.ENV
        else (OCI_MANIFEST, LAYER_ARTIFACT)
    )
    return Descriptor(media_type, str(reference.digest), size, artifact_type=artifact)
