"""What is signed of a layer or environment, and the envelope around it; see formats/signature.md.

The envelope is that of DSSE 1.0: what the key signs begins with the type of the payload and its
length, so that a signature of one kind of document can never pass for one of another.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import Descriptor

SIGNATURE_ARTIFACT: Final = "application/vnd.dsec.signature.v1"
ENVELOPE_TYPE: Final = "application/vnd.dsec.signature.envelope.v1+json"
PAYLOAD_TYPE: Final = "application/vnd.dsec.signature.payload.v1+json"
MAX_ENVELOPE_BYTES: Final = 64 << 10


class Payload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a signature says: this manifest or index is meant.

    `reference` (`kind/name:tag`, or empty) is the only name under which it counts. `expires` is in
    seconds since 1970, None for never.
    """

    media_type: str
    digest: str
    size: int
    reference: str = ""
    expires: int | None = None
    annotations: dict[str, str] = {}

    @classmethod
    def of(
        cls,
        subject: Descriptor,
        *,
        reference: str = "",
        expires: int | None = None,
        annotations: dict[str, str] | None = None,
    ) -> Payload:
        """The payload about `subject`."""
        about = (subject.media_type, subject.digest, subject.size)
        return cls(*about, reference, expires, annotations or {})

    def is_about(self, subject: Descriptor) -> bool:
        """Whether it is `subject` that was signed."""
        about = (subject.media_type, subject.digest, subject.size)
        return (self.media_type, self.digest, self.size) == about

    def encode(self) -> bytes:
        """The canonical JSON."""
        return canonical.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Payload:
        """Parse a payload, whose signature was checked before. Raises CorruptError."""
        return canonical.decode(data, cls, what="signed payload")


class _Signature(msgspec.Struct, frozen=True):
    keyid: str
    sig: str


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...]


class Envelope(msgspec.Struct, frozen=True):
    """Payload bytes, the id of the key (`sha256:...`), and the signature of `to_sign`."""

    payload: bytes
    key_id: str
    signature: bytes

    def encode(self) -> bytes:
        """The canonical JSON."""
        signature = _Signature(self.key_id, base64.b64encode(self.signature).decode())
        payload = base64.b64encode(self.payload).decode()
        return canonical.encode(_Document(payload, PAYLOAD_TYPE, (signature,)))

    @classmethod
    def decode(cls, data: bytes) -> Envelope:
        """Parse an envelope with one signature. Raises CorruptError."""
        document = canonical.decode(data, _Document, what="signature")
        if document.payload_type != PAYLOAD_TYPE:
            raise CorruptError(f"signature is of another document: {document.payload_type!r}")
        if len(document.signatures) != 1:
            raise CorruptError(f"envelope has {len(document.signatures)} signatures instead of one")
        (signature,) = document.signatures
        try:
            payload = base64.b64decode(document.payload, validate=True)
            return cls(payload, signature.keyid, base64.b64decode(signature.sig, validate=True))
        except (binascii.Error, ValueError) as error:
            raise CorruptError(f"signature is malformed: {error}") from error


def to_sign(payload: bytes) -> bytes:
    """The bytes that a key signs for `payload`: DSSE's pre-authentication encoding."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
