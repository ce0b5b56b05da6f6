"""Images in registries: read from where they are or a mirror of it, and written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import DsecError, NotFoundError, StoreError
from dsec_layers.model.digest import Digest
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.registry.oci.client import Client
from dsec_layers.registry.oci.reading import RepositoryReader
from dsec_layers.registry.oci.settings import Place, Settings
from dsec_layers.registry.oci.writing import RepositoryWriter

_BLOB: Final = "application/octet-stream"


class RemoteImage:
    """An image that was found. `manifest` and `media_type` are what its name stands for.

    Safe for many threads.
    """

    def __init__(self, place: RepositoryReader, manifest: bytes, media_type: str) -> None:
        self.manifest = manifest
        self.media_type = media_type
        self.digest = str(Digest.sha256(manifest))
        self._place = place

    def stop(self) -> None:
        """Threads that would wait for the registry get StoreError."""
        self._place.client.stop()

    def document(self, digest: str) -> bytes:
        """A manifest of an index, checked. Raises NotFoundError, CorruptError or StoreError."""
        return self._place.document(digest)[0]

    def stream(self, digest: str, size: int) -> Iterator[bytes]:
        """A blob in pieces, checked at its end. Raises as `document`."""
        return self._place.stream(Descriptor(_BLOB, digest, size))


@contextlib.contextmanager
def find_image(name: ImageName, settings: Settings) -> Iterator[RemoteImage]:
    """Look for an image in its mirrors and its registry, and read it until the context ends.

    Raises NotFoundError or StoreError of the registry itself, and CorruptError.
    """
    *mirrors, origin = settings.places(name)
    with contextlib.ExitStack() as stack:
        yield _first(name, mirrors, origin, stack)


def _first(
    name: ImageName,
    mirrors: list[Place],
    origin: Place,
    stack: contextlib.ExitStack,
) -> RemoteImage:
    for place in mirrors:
        with contextlib.suppress(NotFoundError, StoreError):  # a mirror may lack it, or be away
            return _open(name, place, stack)
    return _open(name, origin, stack)


def _open(name: ImageName, place: Place, stack: contextlib.ExitStack) -> RemoteImage:
    client = Client(place.endpoint, repository=place.path)
    stack.callback(client.close)
    reader = RepositoryReader(client, place.path)
    try:
        return RemoteImage(reader, *reader.document(name.manifest))
    except NotFoundError as error:
        raise NotFoundError(f"there is no image {name}: {error.message}") from error


@contextlib.contextmanager
def new_image(name: ImageName, settings: Settings) -> Iterator[NewImage]:
    """Where an image of this name is written to, until the context ends."""
    place = settings.origin(name)
    client = Client(place.endpoint, repository=place.path)
    try:
        yield NewImage(RepositoryWriter(client, place.path), name)
    finally:
        client.close()


class NewImage:
    """An image on its way into a registry; it is visible when it is published."""

    def __init__(self, place: RepositoryWriter, name: ImageName) -> None:
        self.sent_bytes = 0
        self._place = place
        self._name = name

    def add(self, digest: str, file: Path) -> None:
        """Send a blob unless it is there. Raises CorruptError, NoSpaceError or StoreError."""
        blob = Descriptor(_BLOB, digest, file.stat().st_size)
        if not self._place.has(blob):
            self._place.put_blob(blob, file)
            self.sent_bytes += blob.size

    def publish(self, manifest: bytes) -> None:
        """Tag the image, all of whose blobs are there. Raises StoreError."""
        try:
            self._place.put_manifest(self._name.tag, manifest, OCI_MANIFEST)
        except DsecError as error:
            error.hint = error.hint or f"{self._name} was not published"
            raise
