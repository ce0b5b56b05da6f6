"""Removing one tag, also where a registry can only remove a manifest with all its tags."""

from __future__ import annotations

import secrets
from typing import Final

from dsec_layers.errors import DsecError, StoreError
from dsec_layers.model import canonical
from dsec_layers.model.attachment import EMPTY, EMPTY_BLOB
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_MANIFEST
from dsec_layers.registry.oci.writing import RepositoryWriter

HINT: Final = (
    "let the registry delete (docker-registry: storage.delete.enabled), or use its own way"
)


def untag(place: RepositoryWriter, tag: str) -> None:
    """Remove a tag and no other of the same manifest. Raises StoreError when it cannot be done."""
    if place.delete(f"manifests/{tag}"):
        return
    kept, media_type = place.document(tag)
    data = _tombstone()
    digest = str(Digest.sha256(data))
    if not place.delete(f"manifests/{digest}"):  # asked before anything is changed
        raise StoreError(f"{place.repository}: the registry removes no tags", hint=HINT)
    if not place.has(EMPTY_BLOB):
        place.put_blob(EMPTY_BLOB, EMPTY)
    place.put_manifest(tag, data, OCI_MANIFEST)
    try:
        if not place.delete(f"manifests/{digest}"):
            raise StoreError(f"{place.repository}: the registry removes no tags", hint=HINT)
    except DsecError:
        place.put_manifest(tag, kept, media_type)
        raise


def _tombstone() -> bytes:
    """A manifest that no other tag has, to which the tag is moved and with which it goes."""
    return canonical.encode(
        {
            "annotations": {"dev.dsec.removed": secrets.token_hex(16)},
            "artifactType": "application/vnd.dsec.removed.v1",
            "config": EMPTY_BLOB,
            "layers": [EMPTY_BLOB],
            "mediaType": OCI_MANIFEST,
            "schemaVersion": 2,
        }
    )
