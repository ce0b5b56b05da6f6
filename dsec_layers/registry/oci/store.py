"""A store in an OCI registry (`oci://`), in repositories below a prefix of its own.

    <prefix>/<kind>/<name>    the layer or environment of that name under its tags, each with all
                              that it names: what other programs read, and the registry keeps
    <prefix>/blobs            every blob and manifest of the store, to be found by digest alone;
                              each manifest has the tag `keep-<hex>`

A blob is sent to `blobs` once; a tag mounts it in the repository of its name, which moves nothing.
So no collection of the registry's own, whatever it thinks of untagged manifests, takes from a
tagged layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from dsec_layers.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import checked, files
from dsec_layers.registry.oci import listing, untagging
from dsec_layers.registry.oci.attaching import Attached
from dsec_layers.registry.oci.client import Client
from dsec_layers.registry.oci.documents import Document, is_manifest
from dsec_layers.registry.oci.endpoint import StoreAddress
from dsec_layers.registry.oci.names import COMMON, is_internal, kept_tag, reference_of
from dsec_layers.registry.oci.places import Places
from dsec_layers.registry.oci.reading import RepositoryReader
from dsec_layers.registry.oci.writing import RepositoryWriter, whole
from dsec_layers.registry.references import check_found, check_guard

WORKERS: Final = 8
T = TypeVar("T")


class OciStore:
    """Implements `Store`, safe for many threads. Nothing is asked of the registry when it opens."""

    def __init__(self, address: StoreAddress, client: Client | None = None) -> None:
        self.url = address.url
        self._address = address
        common = address.repository(COMMON)
        self._client = client or Client(address.endpoint, repository=common)
        self._common = RepositoryWriter(self._client, common)
        self._attached = Attached(self._common)
        self._places = Places()

    @classmethod
    def open(cls, url: str) -> OciStore:
        """The store at `url`; its repositories come into being when they are written to."""
        return cls(StoreAddress.parse(url))

    def close(self) -> None:
        """Close the connections. The store stays usable."""
        self._client.close()

    def has(self, blob: Descriptor) -> bool:
        """See `BlobReader.has`."""
        return self._common.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """See `BlobReader.read`."""
        wanted = blob.size - offset if length is None else length
        if offset < 0 or wanted < 0 or offset + wanted > blob.size:
            raise CorruptError(f"{blob.digest} has {blob.size} bytes, asked: {offset}+{wanted}")
        if is_manifest(blob):
            return self._document(blob).data[offset : offset + wanted]
        data = self._first(blob.digest, lambda place: place.read(blob, offset, wanted))
        if wanted == blob.size and str(Digest.sha256(data)) != blob.digest:
            raise CorruptError(f"what {self.url} gives as {blob.digest} has another digest")
        return data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """See `BlobReader.stream`."""
        return checked.CheckedPieces(blob, self._pieces(blob), self.url)

    def put(self, blob: Descriptor, source: checked.Source, *, consume: bool = False) -> bool:
        """See `BlobWriter.put`. A manifest is refused while what it names is not there."""
        missing = not self.has(blob)
        if missing and is_manifest(blob):
            data = whole(blob, source)
            self._common.put_manifest(kept_tag(blob.digest), data, blob.media_type)
        elif missing:
            with files.explained(f"cannot send {blob.digest}"):
                self._common.put_blob(blob, source)
        if consume and isinstance(source, Path):
            source.unlink(missing_ok=True)
        return missing

    def resolve(self, reference: Reference) -> Descriptor:
        """See `References.resolve`."""
        if reference.digest and not reference.tag:
            self._places.learn(self._repository(reference).repository, [str(reference.digest)])
            return self._load(str(reference.digest)).descriptor
        return check_found(reference, self._current(reference), self.url)

    def tagged(self, reference: Reference) -> Descriptor:
        """See `References.tagged`: a registry keeps no annotations with a tag."""
        return self.resolve(reference)

    def tag(
        self,
        reference: Reference,
        target: Descriptor,
        *,
        expected: Descriptor | bool | None = False,
    ) -> None:
        """See `References.tag`, but for the guard, which a registry has no word for.

        What stands there is read before and after; of two writers at the same moment both may
        succeed, the later one's tag standing, or one learns that it was overwritten.
        """
        _check_tag(reference)
        document = self._load(target.digest)
        place = self._repository(reference)
        guarded = not isinstance(expected, bool)
        if not isinstance(expected, bool):
            check_guard(reference, expected, self._current(reference))
        self._gather(document, place)
        place.put_manifest(reference.tag, document.data, document.descriptor.media_type)
        if guarded:
            found = self._current(reference)
            if found is None or found.digest != target.digest:
                raise ConflictError(f"somebody else has tagged {reference} at the same moment")

    def untag(self, reference: Reference) -> None:
        """See `References.untag`."""
        _check_tag(reference)
        found = self._current(reference)
        if found is None:
            raise NotFoundError(f"no such tag: {reference}")
        untagging.untag(self._repository(reference), reference.tag)

    def tags(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """See `References.tags`. Reads the manifest of each tag."""
        found = sorted(self._listed(kind, name))
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="tags") as pool:
            targets = pool.map(self._current, found)
            for reference, target in zip(found, targets, strict=True):
                if target is not None:  # None: removed since
                    yield reference, target

    def delete(self, blob: Descriptor) -> None:
        """See `Store.delete`: from the common repository; the registry frees the space itself."""
        kind = "manifests" if is_manifest(blob) else "blobs"
        if not self._common.delete(f"{kind}/{blob.digest}"):
            raise StoreError(f"{self.url} does not allow to delete", hint=untagging.HINT)

    def blobs(self) -> Iterator[Descriptor]:
        """All blobs to which a manifest leads, whether it is tagged by us or not."""
        seen: set[str] = set()
        for tag in listing.tags(self._client, self._common.repository):
            if not is_internal(tag):
                continue
            data, media_type = self._common.document(tag)
            document = Document.parse(data, media_type, what=f"{self.url} {tag}")
            for blob in (*document.blobs, document.descriptor):
                if blob.digest not in seen:
                    seen.add(blob.digest)
                    yield blob

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`."""
        return self._attached.list(subject)

    def attach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.attach`."""
        if not self.has(referrer):
            raise NotFoundError(f"cannot attach {referrer.digest}: it is not in {self.url}")
        self._attached.add(subject, referrer)

    def detach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.detach`."""
        self._attached.remove(subject, referrer)

    def _repository(self, reference: Reference) -> RepositoryWriter:
        return RepositoryWriter(self._client, self._address.repository(reference.repository))

    def _current(self, reference: Reference) -> Descriptor | None:
        """What a tag points to."""
        _check_tag(reference)
        place = self._repository(reference)
        try:
            data, media_type = place.document(reference.tag)
        except NotFoundError:
            return None
        return self._learned(place, data, media_type).descriptor

    def _document(self, blob: Descriptor) -> Document:
        document = self._load(blob.digest)
        if document.descriptor.size != blob.size:
            raise CorruptError(
                f"{blob.digest} has {document.descriptor.size} bytes instead of {blob.size}"
            )
        return document

    def _load(self, digest: str) -> Document:
        """A manifest or index by digest."""
        return self._first(digest, lambda place: self._learned(place, *place.document(digest)))

    def _learned(self, place: RepositoryReader, data: bytes, media_type: str) -> Document:
        document = Document.parse(data, media_type, what=f"{place.repository} in {self.url}")
        if place is not self._common:
            named = (document.descriptor, *document.blobs, *document.manifests)
            self._places.learn(place.repository, (each.digest for each in named))
        return document

    def _pieces(self, blob: Descriptor) -> Iterator[bytes]:
        if is_manifest(blob):
            yield self._document(blob).data
            return
        length = blob.size
        first, rest = self._first(blob.digest, lambda place: _begin(place.pieces(blob, 0, length)))
        if first:
            yield first
        yield from rest

    def _first(self, digest: str, call: Callable[[RepositoryReader], T]) -> T:
        """From the common repository, else from where the digest was seen named."""
        try:
            return call(self._common)
        except NotFoundError:
            if repository := self._places.find(digest):
                try:
                    return call(RepositoryReader(self._client, repository))
                except NotFoundError:
                    pass
        raise NotFoundError(f"{digest} is not in {self.url}")

    def _gather(self, document: Document, place: RepositoryWriter) -> None:
        """Make all that a manifest or index names part of the repository of its tag."""
        if place.has(document.descriptor):
            return
        children = [self._load(each.digest) for each in document.manifests]
        blobs = {
            blob.digest: blob for each in (document, *children) for blob in each.blobs
        }.values()
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="mount") as pool:
            for _ in pool.map(lambda blob: _bring(blob, place, self._common), blobs):
                pass
        for child in children:
            # With a tag: some collections take children of a tagged index for untagged manifests.
            name = kept_tag(child.descriptor.digest)
            place.put_manifest(name, child.data, child.descriptor.media_type)

    def _listed(self, kind: Kind | None, name: str | None) -> Iterator[Reference]:
        kinds = (kind,) if kind else tuple(Kind)
        for repository in self._repositories(kinds, name):
            for tag in listing.tags(self._client, self._address.repository(repository)):
                if reference := reference_of(repository, tag):
                    yield reference

    def _repositories(self, kinds: tuple[Kind, ...], name: str | None) -> Iterator[str]:
        """Without the prefix; all are only listed when it is not known which are wanted."""
        if name is not None:
            yield from (f"{kind.value}/{name}" for kind in kinds)
            return
        prefix = self._address.repository("")
        for repository in listing.repositories(self._client):
            found = repository.removeprefix(prefix)
            if repository.startswith(prefix) and found.partition("/")[0] in kinds:
                yield found


def _check_tag(reference: Reference) -> None:
    if not reference.tag:
        raise InvalidInputError(f"{reference} has no tag", hint="name a tag, as in base/debian:12")
    if is_internal(reference.tag):
        raise InvalidInputError(f"the tag of {reference} is one that registries use themselves")


def _bring(blob: Descriptor, place: RepositoryWriter, source: RepositoryReader) -> None:
    """Mount a blob where it is not yet: some registries cannot do it twice at the same moment."""
    if not place.has(blob):
        place.mount(blob, source)


def _begin(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    return next(pieces, b""), pieces
