"""Attachments in a store: found from what they are about, loaded and checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.attachment import ARTIFACT_PREFIX, EMPTY, EMPTY_BLOB, Attachment
from dsec_layers.model.blobs import BlobReader, Store
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.registry import leases
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES


class AttachmentReader(BlobReader, Protocol):
    """A store, or several as one."""

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`."""
        ...


def attachments(
    store: AttachmentReader, subject: Descriptor
) -> Iterator[tuple[Descriptor, Attachment]]:
    """What this project has attached to the manifest or index `subject`, by digest.

    Passed over is what other programs attached, and what has been removed meanwhile. Raises
    CorruptError for one that is malformed or about something else, and StoreError.
    """
    for referrer in store.referrers(subject):
        if not referrer.artifact_type.startswith(ARTIFACT_PREFIX):
            continue
        with contextlib.suppress(NotFoundError):
            yield referrer, load(store, referrer, subject)


def load(store: BlobReader, referrer: Descriptor, subject: Descriptor) -> Attachment:
    """The attachment `referrer`, found from `subject`. Raises as `attachments`, NotFoundError."""
    if referrer.media_type != OCI_MANIFEST or referrer.size > MAX_DOCUMENT_BYTES:
        raise CorruptError(f"{referrer.digest}, attached to {subject.digest}, is no attachment")
    attachment = Attachment.decode(store.read(referrer))
    if attachment.subject.digest != subject.digest:
        about = attachment.subject.digest
        raise CorruptError(f"{referrer.digest} is attached to {subject.digest} but about {about}")
    return attachment


def publish(store: Store, attachment: Attachment, *data: bytes) -> Descriptor:
    """Put the `data` of an attachment, then its manifest, and attach it.

    Raises NoSpaceError or StoreError.
    """
    descriptor = attachment.descriptor()
    with leases.hold(store, (*attachment.blobs, descriptor), purpose="attach") as held:
        for blob, content in zip(attachment.data, data, strict=True):
            store.put(blob, content)
        store.put(EMPTY_BLOB, EMPTY)
        store.put(descriptor, attachment.encode())
        held.check()
        store.attach(attachment.subject, descriptor)
    return descriptor
