"""What is attached to a manifest: by the registry's own list, or an index of ours under a tag.

Format: OCI distribution specification 1.1, "Listing Referrers" and "Referrers Tag Schema".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import msgspec

from dsec_layers.errors import ConflictError, NotFoundError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import OCI_INDEX, Descriptor
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES
from dsec_layers.registry.oci.client import pull_scope
from dsec_layers.registry.oci.names import referrers_tag
from dsec_layers.registry.oci.writing import RepositoryWriter

_ATTEMPTS: Final = 10


class _Index(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int
    media_type: str
    manifests: tuple[Descriptor, ...]


class Attached:
    """The referrers in one repository."""

    def __init__(self, place: RepositoryWriter) -> None:
        self._place = place
        self._lock = threading.Lock()

    def list(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`."""
        listed = self._by_registry(subject)
        found = self._by_tag(subject) if listed is None else listed
        for each in sorted(found, key=lambda each: each.digest):
            yield msgspec.structs.replace(each, annotations={})

    def add(self, subject: Descriptor, referrer: Descriptor) -> None:
        """Make `referrer` findable, which is in the repository already."""
        listed = self._by_registry(subject)
        if listed is None or referrer.digest not in (each.digest for each in listed):
            self._change(subject, referrer, present=True)

    def remove(self, subject: Descriptor, referrer: Descriptor) -> None:
        """Let `referrer` not be found; a list of the registry's own ends with the manifest."""
        listed = self._by_registry(subject)
        if listed is None:
            self._change(subject, referrer, present=False)
        elif referrer.digest in (each.digest for each in listed):
            self._place.delete(f"manifests/{referrer.digest}")

    def _by_registry(self, subject: Descriptor) -> tuple[Descriptor, ...] | None:
        """What the registry lists, page by page; None when it keeps no list."""
        repository = self._place.repository
        path: str | None = f"/v2/{repository}/referrers/{subject.digest}"
        found: list[Descriptor] = []
        while path:
            response, data = self._place.client.whole(
                path,
                scope=pull_scope(repository),
                doing=f"cannot list what is attached to {subject.digest}",
                most_bytes=MAX_DOCUMENT_BYTES,
                expected=(200, 400, 404, 405),
            )
            kind = response.headers.get("Content-Type", "").partition(";")[0]
            if response.status_code != 200 or kind != OCI_INDEX:
                return None
            path = response.links.get("next", {}).get("url")
            found += canonical.decode(data, _Index, what="list of referrers").manifests
        return tuple(found)

    def _by_tag(self, subject: Descriptor) -> tuple[Descriptor, ...]:
        try:
            data, _ = self._place.document(referrers_tag(subject.digest))
        except NotFoundError:
            return ()
        return canonical.decode(data, _Index, what="list of referrers").manifests

    def _change(self, subject: Descriptor, referrer: Descriptor, *, present: bool) -> None:
        """Add or take out one. Among processes there is no lock: it is looked again afterwards."""
        with self._lock:
            self._try_to_change(subject, referrer, present=present)

    def _try_to_change(self, subject: Descriptor, referrer: Descriptor, *, present: bool) -> None:
        for number in range(_ATTEMPTS):
            known = {each.digest: each for each in self._by_tag(subject)}
            if (referrer.digest in known) is present:
                return
            known.pop(referrer.digest, None)
            if present:
                known[referrer.digest] = referrer
            index = _Index(2, OCI_INDEX, tuple(known[digest] for digest in sorted(known)))
            data = canonical.encode(index)
            self._place.put_manifest(referrers_tag(subject.digest), data, OCI_INDEX)
            if number:  # somebody else writes too: let them not meet again
                self._place.client.pause(0)
        raise ConflictError(
            f"others keep changing what is attached to {subject.digest}", hint="try again later"
        )
