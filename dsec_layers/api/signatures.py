"""Signatures in stores: made, found, listed. Whether one is to be believed is told by `trust`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import CorruptError, DsecError, InvalidInputError, NotFoundError
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.blobs import BlobReader, Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.model.signature import (
    ENVELOPE_TYPE,
    MAX_ENVELOPE_BYTES,
    SIGNATURE_ARTIFACT,
    Envelope,
    Payload,
    to_sign,
)
from dsec_layers.registry.attachments import AttachmentReader, load, publish
from dsec_layers.registry.urls import open_store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class SignOptions:
    """What a signature says besides the digest; see `Payload`. `bound`: it counts for this name."""

    bound: bool = False
    expires: int | None = None
    annotations: Mapping[str, str] | None = None


class Signed(msgspec.Struct, frozen=True):
    """A new signature: of what, by which key, and its own digest."""

    reference: str
    digest: str
    key_id: str
    signature: str
    stores: tuple[str, ...]


class Row(msgspec.Struct, frozen=True):
    """A signature in a store, not checked against any key. `problem` says why it is none."""

    signature: str
    key_id: str = ""
    reference: str = ""
    expires: int | None = None
    annotations: dict[str, str] = {}
    problem: str = ""


class Found(NamedTuple):
    """The digest of an attached signature and its envelope, or why there is none in it."""

    digest: str
    envelope: Envelope
    problem: str


def sign(
    bench: Workbench,
    reference: Reference,
    key: Ed25519PrivateKey,
    options: SignOptions = SignOptions(),
    stores: Sequence[str] = (),
) -> Signed:
    """Sign the manifest or index of `reference`, attach that here and in further `stores`.

    The same key, digest and options give the same signature. Raises NotFoundError (also when a
    store lacks what is signed), InvalidInputError, StoreError or NoSpaceError.
    """
    from dsec_layers.api.keys import key_id

    if options.bound and not reference.tag:
        raise InvalidInputError(f"{reference} has no tag that the signature could count for")
    subject = bench.resolve(reference)
    targets = [bench.local, *map(open_store, stores)]
    for store in targets:
        _require(store, subject)
    payload = Payload.of(
        subject,
        reference=f"{reference.repository}:{reference.tag}" if options.bound else "",
        expires=options.expires,
        annotations=dict(options.annotations or {}),
    ).encode()
    ours = key_id(key.public_key())
    envelope = Envelope(payload, ours, key.sign(to_sign(payload))).encode()
    if len(envelope) > MAX_ENVELOPE_BYTES:
        raise InvalidInputError(f"the annotations are too long: at most {MAX_ENVELOPE_BYTES} bytes")
    data = Descriptor.of(envelope, ENVELOPE_TYPE)
    attachment = Attachment(SIGNATURE_ARTIFACT, subject, (data,))
    for store in targets:
        publish(store, attachment, envelope)
    signature = attachment.descriptor().digest
    urls = tuple(store.url for store in targets)
    return Signed(str(reference), subject.digest, ours, signature, urls)


def list_signatures(bench: Workbench, reference: Reference) -> list[Row]:
    """The signatures of `reference`, here and in the further stores, by digest.

    Raises NotFoundError, CorruptError or StoreError.
    """
    subject = bench.resolve(reference)
    return sorted(map(_row, found(bench.reader, subject)), key=lambda row: row.signature)


def found(store: AttachmentReader, subject: Descriptor) -> Iterator[Found]:
    """What is attached to `subject` as a signature. Raises CorruptError or StoreError."""
    for referrer in store.referrers(subject):
        if referrer.artifact_type == SIGNATURE_ARTIFACT:
            try:
                yield Found(referrer.digest, _load(store, referrer, subject), "")
            except (CorruptError, InvalidInputError, NotFoundError) as error:
                yield Found(referrer.digest, _NOTHING, error.message)


_NOTHING = Envelope(b"", "", b"")


def _load(store: BlobReader, referrer: Descriptor, subject: Descriptor) -> Envelope:
    attachment = load(store, referrer, subject)
    if attachment.artifact_type != SIGNATURE_ARTIFACT or len(attachment.data) != 1:
        raise CorruptError(f"{referrer.digest} is no signature")
    (blob,) = attachment.data
    if blob.media_type != ENVELOPE_TYPE or blob.size > MAX_ENVELOPE_BYTES:
        raise CorruptError(f"{blob.digest} is no signature: {blob.media_type}, {blob.size} bytes")
    return Envelope.decode(store.read(blob))


def _row(each: Found) -> Row:
    if each.problem:
        return Row(each.digest, problem=each.problem)
    try:
        payload = Payload.decode(each.envelope.payload)
    except DsecError as error:
        return Row(each.digest, each.envelope.key_id, problem=error.message)
    return Row(
        each.digest,
        each.envelope.key_id,
        payload.reference,
        payload.expires,
        payload.annotations,
    )


def _require(store: Store, subject: Descriptor) -> None:
    if not store.has(subject):
        raise NotFoundError(f"{subject.digest} is not in {store.url}", hint="push it there first")
