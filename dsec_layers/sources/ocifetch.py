"""The files of an image that is in a registry, as a layout has them.

The registry itself is a stranger here: who calls gives a `Fetch`. Layers are fetched side by side,
a few ahead of the one that is read, into files that are gone when they have been read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import msgspec

from dsec_layers.errors import DISK_FULL, InvalidInputError, NoSpaceError, NotFoundError
from dsec_layers.model import canonical
from dsec_layers.sources.ociblobs import MAX_DOCUMENT_BYTES, Pointer, blob_name

AHEAD: Final = 4
_SCHEMA_1: Final = "application/vnd.docker.distribution.manifest.v1+"
_BLOBS: Final = "blobs/sha256/"

# Told the bytes since its last call, and those of all layers.
Fetched = Callable[[int, int], object]


class Fetch(Protocol):
    """An image in a registry. Safe for many threads; what it gives is checked."""

    @property
    def manifest(self) -> bytes:
        """What the name of the image stands for: a manifest or an index."""
        ...

    @property
    def media_type(self) -> str:
        """Its media type, as the registry says."""
        ...

    @property
    def digest(self) -> str:
        """Its digest."""
        ...

    def stop(self) -> None:
        """Nothing more is wanted: threads that wait get an error."""
        ...

    def document(self, digest: str) -> bytes:
        """A manifest or index by digest."""
        ...

    def stream(self, digest: str, size: int) -> Iterator[bytes]:
        """A blob in pieces."""
        ...


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""
    schema_version: int = 2
    config: Pointer | None = None
    layers: tuple[Pointer, ...] = ()
    manifests: tuple[Pointer, ...] = ()


class FetchedFiles:
    """Implements `Files`. `spool_dir` is the caller's to remove, when this is closed."""

    def __init__(
        self, fetch: Fetch, spool_dir: Path, progress: Fetched = lambda _done, _total: None
    ) -> None:
        top = canonical.decode(fetch.manifest, _Document, what="manifest")
        self._media_type = top.media_type or fetch.media_type
        if top.schema_version == 1 or self._media_type.startswith(_SCHEMA_1):
            raise InvalidInputError(
                "the image has a manifest of Docker's schema 1, which was given up in 2017: it "
                "does not say what its layers hold",
                hint="pull it with an engine that still reads it, and push it again",
            )
        self._fetch = fetch
        self._spool_dir = spool_dir
        self._progress = progress
        self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="fetch")
        self._stopped = False
        self._documents = {fetch.digest}
        self._sizes: dict[str, int] = {}
        self._waiting: list[str] = []
        self._coming: dict[str, Future[Path]] = {}
        self._total = 0

    def close(self) -> None:
        """Nothing more is read; what is under way ends."""
        self._stopped = True
        self._fetch.stop()
        self._pool.shutdown(cancel_futures=True)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in ("oci-layout", "index.json")

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises NotFoundError, and what fetching raises."""
        digest = f"sha256:{name.removeprefix(_BLOBS)}"
        if name == "index.json":
            return io.BytesIO(self._index())
        if digest in self._documents:
            return io.BytesIO(self._document(digest))
        if digest not in self._sizes:
            raise NotFoundError(f"the image has no {name}")
        return self._blob(digest)

    def _index(self) -> bytes:
        pointer = {
            "mediaType": self._media_type,
            "digest": self._fetch.digest,
            "size": len(self._fetch.manifest),
        }
        return json.dumps({"schemaVersion": 2, "manifests": [pointer]}).encode()

    def _document(self, digest: str) -> bytes:
        is_top = digest == self._fetch.digest
        data = self._fetch.manifest if is_top else self._fetch.document(digest)
        found = canonical.decode(data, _Document, what=f"manifest {digest}")
        self._documents.update(pointer.digest for pointer in found.manifests)
        layers = {pointer.digest: pointer.size for pointer in found.layers}
        self._sizes.update(layers)
        self._waiting = list(layers)
        self._total = sum(layers.values())
        if found.config is not None:
            if found.config.size > MAX_DOCUMENT_BYTES:
                raise InvalidInputError(f"the config of the image has {found.config.size} bytes")
            self._sizes[found.config.digest] = found.config.size
        return data

    def _blob(self, digest: str) -> BinaryIO:
        """A blob on disk; the first layer that is wanted sets off those after it."""
        if digest in self._waiting:
            self._advance()
        if digest in self._coming:
            path = self._coming.pop(digest).result()
            self._advance()
        else:  # the config, or a layer that occurs again
            path = self._keep(digest)
        file = path.open("rb", 1 << 18)
        path.unlink()  # its bytes are there until the file is closed
        return file

    def _advance(self) -> None:
        """Fetch what comes next, so that no more than `AHEAD` layers wait to be read."""
        while self._waiting and len(self._coming) < AHEAD:
            digest = self._waiting.pop(0)
            self._coming[digest] = self._pool.submit(self._keep, digest)

    def _keep(self, digest: str) -> Path:
        path = self._spool_dir / blob_name(digest).rpartition("/")[2]
        try:
            with path.open("wb") as file:
                for piece in self._fetch.stream(digest, self._sizes[digest]):
                    if self._stopped:
                        raise InterruptedError
                    file.write(piece)
                    self._progress(len(piece), self._total)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise NoSpaceError(
                    f"no space for the layers of an image in {path.parent}"
                ) from error
            raise
        return path
