"""Which layers and environments are accepted: those that given keys have signed.

A signature is accepted when its key is one of the given ones, it is that key's signature of the
payload, the payload is about the digest that was resolved, under the name that was asked for if it
names one, and has not expired. Whatever else is found is a reason for the refusal, never an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.api.keys import PublicKey, load_public
from dsec_layers.api.signatures import found
from dsec_layers.errors import CorruptError, SignatureError
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.model.signature import Envelope, Payload, to_sign
from dsec_layers.registry.attachments import AttachmentReader


@dataclass(frozen=True)
class Trust:
    """The keys that count: one of them suffices unless `require_all`. `now` is in seconds."""

    keys: Sequence[PublicKey]
    require_all: bool = False
    now: Callable[[], float] = time.time

    @classmethod
    def of(cls, paths: Sequence[Path], *, require_all: bool = False) -> Trust:
        """The keys in these files. Raises SignatureError for one that cannot be used, or none."""
        if not paths:
            raise SignatureError("no key is named that must have signed")
        return cls(tuple(map(load_public, paths)), require_all)

    def check(
        self, store: AttachmentReader, reference: Reference, descriptor: Descriptor
    ) -> tuple[str, ...]:
        """The ids of the keys that have signed `descriptor`, which `reference` was resolved to.

        Raises SignatureError when they do not suffice, StoreError when that cannot be known.
        """
        known = {key.key_id: key for key in self.keys}
        reasons: list[str] = []
        signed: set[str] = set()
        for each in found(store, descriptor):
            reason = each.problem or self._refusal(known, each.envelope, reference, descriptor)
            if reason:
                reasons.append(reason)
            else:
                signed.add(each.envelope.key_id)
        missing = known.keys() - signed
        if missing and (self.require_all or not signed):
            raise _refused(reference, descriptor, [known[each] for each in missing], reasons)
        return tuple(sorted(signed))

    def _refusal(
        self,
        known: Mapping[str, PublicKey],
        envelope: Envelope,
        reference: Reference,
        descriptor: Descriptor,
    ) -> str:
        """Why a signature does not count; empty when it does."""
        key = known.get(envelope.key_id)
        if key is None:
            return f"one is by another key, {envelope.key_id[:19]}"
        if not key.made(envelope.signature, to_sign(envelope.payload)):
            return f"one claims to be by {key.path} and is not"
        try:
            payload = Payload.decode(envelope.payload)
        except CorruptError as error:
            return error.message
        return self._objection(payload, reference, descriptor)

    def _objection(self, payload: Payload, reference: Reference, descriptor: Descriptor) -> str:
        if not payload.is_about(descriptor):
            return f"one is of {payload.digest}"
        # Who asks for a digest gets it under whatever name; a tag could be made to lead elsewhere.
        asked = f"{reference.repository}:{reference.tag}"
        if reference.digest is None and payload.reference not in ("", asked):
            return f"one counts only for {payload.reference}"
        if payload.expires is not None and self.now() >= payload.expires:
            return "one has expired"
        return ""


def _refused(
    reference: Reference,
    descriptor: Descriptor,
    missing: Sequence[PublicKey],
    reasons: Sequence[str],
) -> SignatureError:
    keys = " or ".join(sorted(str(key.path) for key in missing))
    why = "; ".join(dict.fromkeys(reasons)) or "it has no signature"
    return SignatureError(
        f"{reference} ({descriptor.digest}) is not signed by {keys}: {why}",
        hint=f"`dsec-layers signatures {reference}` lists what there is",
    )
