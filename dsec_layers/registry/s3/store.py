"""A store in a bucket of S3, or of a server that speaks its protocol.

The names and bytes below the prefix are those of a store in a directory, but for what only files
need:

    dsec-store.json                            this prefix is a store
    packs/<hh>/<64 hex>  blobs/<hh>/<64 hex>   blobs
    refs/<kind>/<name>/@<tag>.json             references
    referrers/<hh>/<64 hex>/<64 hex>.json      what is attached to a manifest
    leases/<id>  condemned/<id>                notes of writers and of collection
    probes/<id>                                gone as soon as it has been written (see `guards`)

An object appears whole or not at all, so nothing is written aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.model import canonical
from dsec_layers.model.collecting import Note
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import marker
from dsec_layers.registry.connections import Connections
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES
from dsec_layers.registry.naming import manifest_at
from dsec_layers.registry.patience import Patience, stop_when_given_up
from dsec_layers.registry.references import check_found
from dsec_layers.registry.s3.blobs import S3Blobs
from dsec_layers.registry.s3.bucket import Bucket, Refused
from dsec_layers.registry.s3.client import make_client
from dsec_layers.registry.s3.location import Location
from dsec_layers.registry.s3.references import MAX_BYTES, S3References

STALE_AFTER_S: Final = 24 * 3600


class S3Store(S3Blobs):
    """Implements `Collectable`, safe for many threads, processes and nodes at once. See `open`."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self._references = S3References(bucket)

    @classmethod
    def open(cls, url: str, *, create: bool = False, patience: Patience | None = None) -> S3Store:
        """Open the store at `url`; with `create` an absent one is made, but never its bucket.

        Raises InvalidInputError, or StoreError when there is no store, it cannot be reached, or a
        newer version of this program has laid it out.
        """
        location = Location.parse(url)
        connections = Connections()
        stop_when_given_up(connections)
        client = make_client(location, connections)
        store = cls(Bucket(client, location, patience or Patience(), connections))
        found = store.bucket.get(marker.MARKER, MAX_BYTES)
        if found is None and create:
            try:
                store.bucket.put(marker.MARKER, marker.encoded(), absent=True)
            except Refused:  # another was first
                found = store.bucket.get(marker.MARKER, MAX_BYTES)
        elif found is None:
            hint = "check the spelling; a push makes a new store"
            raise StoreError(f"there is no store at {store.url}", hint=hint)
        if found is not None:
            marker.check_layout(found[0], store.url)
        return store

    def resolve(self, reference: Reference) -> Descriptor:
        """See `References.resolve`. A digest without a tag is looked up as manifest or index."""
        return replace(self.tagged(reference), annotations={})

    def tagged(self, reference: Reference) -> Descriptor:
        """See `References.tagged`."""
        if reference.digest and not reference.tag:
            return manifest_at(reference, self._stat(manifest_at(reference, 0))[0])
        return check_found(reference, self._references.read(reference), self.url)

    def tag(
        self,
        reference: Reference,
        target: Descriptor,
        *,
        expected: Descriptor | bool | None = False,
    ) -> None:
        """See `References.tag`. Raises NotFoundError when the store lacks `target`."""
        if not self.has(target):
            raise NotFoundError(f"cannot tag {reference}: {target.digest} is not in {self.url}")
        self._references.write(reference, target, expected)

    def untag(self, reference: Reference) -> None:
        """See `References.untag`."""
        self._references.remove(reference)

    def tags(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """See `References.tags`."""
        return self._references.list(kind, name)

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`."""
        for found in self.bucket.list(_referrers_of(subject)):
            answer = self.bucket.get(found.name, MAX_BYTES)
            if answer is None:  # removed since
                continue
            what = f"{found.name} in {self.url}"
            referrer = canonical.decode(answer[0], Descriptor, what=what)
            if _referrer_name(subject, referrer) != found.name:
                raise CorruptError(f"{what} is of {referrer.digest}")
            yield referrer

    def attach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.attach`."""
        if not self.has(referrer):
            raise NotFoundError(f"cannot attach {referrer.digest}: it is not in {self.url}")
        self.bucket.put(_referrer_name(subject, referrer), canonical.encode(referrer))

    def detach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.detach`."""
        self.bucket.delete(_referrer_name(subject, referrer))

    def notes(self, folder: str) -> Iterator[Note]:
        """See `Collectable.notes`."""
        for found in self.bucket.list(f"{folder}/"):
            yield Note(found.name, found.modified_s)

    def read_note(self, name: str) -> bytes:
        """See `Collectable.read_note`."""
        answer = self.bucket.get(name, MAX_DOCUMENT_BYTES)
        if answer is None:
            raise NotFoundError(f"no note {name} in {self.url}")
        return answer[0]

    def write_note(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See `Collectable.write_note`."""
        self.bucket.put(name, data)

    def remove_note(self, name: str) -> None:
        """See `Collectable.remove_note`."""
        self.bucket.delete(name)

    def remove_stale(self, older_than_s: float = STALE_AFTER_S) -> int:
        """Abort the uploads of writers that died, and return how many there were."""
        return self.uploads.remove_stale(older_than_s)


def _referrers_of(subject: Descriptor) -> str:
    digest = subject.parsed_digest
    return f"referrers/{digest.hex[:2]}/{digest.hex}/"


def _referrer_name(subject: Descriptor, referrer: Descriptor) -> str:
    return f"{_referrers_of(subject)}{referrer.parsed_digest.hex}.json"
