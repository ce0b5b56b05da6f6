"""Blobs and manifests of one repository, written: mounted from another, or sent in parts.

A part is kept in memory until the registry has it, so a transfer that breaks off goes on where the
registry says it stands. Digest and size are checked before the last word is said.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import requests

from dsec_layers.errors import CorruptError, DsecError, NotFoundError, StoreError
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import checked
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES
from dsec_layers.registry.oci.client import Client, delete_scope, push_scope
from dsec_layers.registry.oci.reading import RepositoryReader

PART_BYTES: Final = 8 << 20
_LOOKS: Final = 4
_UNKNOWN: Final = "BLOB_UNKNOWN"
_OCTETS: Final = "application/octet-stream"
_RANGE: Final = re.compile(r"(?:bytes=)?0-(\d+)")


class RepositoryWriter(RepositoryReader):
    """Writes to one repository, too. Safe for many threads."""

    def put_blob(self, blob: Descriptor, content: checked.Source) -> None:
        """Send a blob. Raises CorruptError (`content` is another one), NoSpaceError, StoreError."""
        try:
            self._send(self._begin(), checked.pieces(blob, content), blob)
        except (StoreError, NotFoundError):
            if not isinstance(content, Path | bytes):
                raise
            # Some registries do not know where an upload stands after an answer was lost.
            self._send(self._begin(), checked.pieces(blob, content), blob)

    def mount(self, blob: Descriptor, source: RepositoryReader) -> None:
        """Make a blob of another repository one of this too, without moving it where possible.

        Raises NotFoundError, CorruptError, NoSpaceError or StoreError.
        """
        path = f"{self._uploads}?mount={blob.digest}&from={source.repository}"
        with self.client.answer(
            "POST",
            path,
            scope=push_scope(self.repository, source.repository),
            doing=f"cannot mount {blob.digest} in {self.repository}",
            expected=(201, 202),
        ) as response:
            if response.status_code == requests.codes.created:
                return
            location = _location(response)
        self._send(location, source.stream(blob), blob)

    def put_manifest(self, name: str, data: bytes, media_type: str) -> None:
        """Publish a manifest or index under a tag or its digest.

        Raises StoreError, also when the repository lacks what it names.
        """
        for number in range(_LOOKS - 1):
            try:
                self._put_manifest(name, data, media_type)
            except (StoreError, NotFoundError) as error:
                # While another writer mounts the same blobs, docker-registry may not see them.
                if _UNKNOWN not in error.message:
                    raise
            else:
                return
            self.client.pause(number)
        self._put_manifest(name, data, media_type)

    def _put_manifest(self, name: str, data: bytes, media_type: str) -> None:
        with self.client.answer(
            "PUT",
            f"/v2/{self.repository}/manifests/{name}",
            scope=push_scope(self.repository),
            doing=f"cannot publish {self.repository}:{name}",
            expected=(200, 201, 202),
            headers={"Content-Type": media_type},
            data=data,
        ) as response:
            told = response.headers.get("Docker-Content-Digest", "")
            if told.startswith("sha256:") and told != str(Digest.sha256(data)):
                raise StoreError(f"{self.client.endpoint.host} has made {told} of a manifest")

    def delete(self, path: str) -> bool:
        """Remove `blobs/<digest>` or `manifests/<digest or tag>`; False when the registry cannot.

        It is not an error when it is not there. Raises StoreError.
        """
        with self.client.answer(
            "DELETE",
            f"/v2/{self.repository}/{path}",
            scope=delete_scope(self.repository),
            doing=f"cannot remove {path} from {self.repository}",
            expected=(200, 202, 204, 400, 404, 405),
        ) as response:
            return response.status_code not in (400, 405)

    def _send(self, location: str, pieces: Iterator[bytes], blob: Descriptor) -> None:
        upload = _Upload(self.client, self.repository, location)
        for number in range(self.client.patience.attempts):
            try:
                upload.send(pieces, blob)
            except NotFoundError:
                # The upload is gone when the answer to the last word was lost and it is said again.
                if self.has(blob):
                    return
                # Of a last word that came by half docker-registry knows no way on.
                upload.abandon()
                if upload.whole is None or number + 1 == self.client.patience.attempts:
                    raise
                pieces = iter([upload.whole])
                upload = _Upload(self.client, self.repository, self._begin())
            except BaseException:
                upload.abandon()
                raise
            else:
                return

    @property
    def _uploads(self) -> str:
        return f"/v2/{self.repository}/blobs/uploads/"

    def _begin(self) -> str:
        with self.client.answer(
            "POST",
            self._uploads,
            scope=push_scope(self.repository),
            doing=f"cannot write to {self.repository}",
            expected=(202,),
        ) as response:
            return _location(response)


def whole(blob: Descriptor, content: checked.Source) -> bytes:
    """A manifest in memory. Raises CorruptError when `content` is something else, or too long."""
    if blob.size > MAX_DOCUMENT_BYTES:
        raise CorruptError(f"{blob.digest} is too large for a manifest")
    return b"".join(checked.pieces(blob, content))


class _Upload:
    """A blob on its way: `location` is where the next part goes, and changes with each.

    `whole` is all of it once it goes with the last word alone.
    """

    def __init__(self, client: Client, repository: str, location: str) -> None:
        self._client = client
        self._scope = push_scope(repository)
        self._location = location
        self.whole: bytes | None = None

    def send(self, pieces: Iterator[bytes], blob: Descriptor) -> None:
        """Send all parts and publish the blob; what fits in one part goes with the last word."""
        position, last = 0, b""
        for part in _parts(pieces):
            if len(part) == blob.size:
                last = part  # whether it is right is known when nothing follows
                continue
            self._patch(part, position)
            position += len(part)
        self.whole = last if len(last) == blob.size else None
        self._commit(last, blob)

    def abandon(self) -> None:
        """Tell the registry that nothing more comes; it finds out by itself too."""
        with contextlib.suppress(DsecError):
            self._ask("DELETE", self._location, None, (200, 202, 204, 404, 405), again=False)

    def _patch(self, part: bytes, position: int) -> None:
        """Send a part; after a failure only what the registry has not taken of it."""
        end = position + len(part)
        start = position
        attempts = self._client.patience.attempts
        for number in range(attempts):
            headers = {"Content-Range": f"{start}-{end - 1}", "Content-Type": _OCTETS}
            try:
                body = part[start - position :]
                self._ask("PATCH", self._location, body, (202,), headers=headers, again=False)
            except NotFoundError:
                raise
            except StoreError as error:
                if number + 1 == attempts:
                    raise
                self._client.pause(number)
                start = self._taken(error)
            else:
                return
            if start == end:
                return
            if not position <= start < end:
                raise StoreError(f"the registry has lost what it took: it stands at {start}")

    def _taken(self, error: StoreError) -> int:
        """How many bytes the registry has. Raises `error` when it does not know the upload."""
        try:
            reached = self._ask("GET", self._location, None, (200, 204))
        except DsecError:
            raise error from None
        match = _RANGE.fullmatch(reached)
        # docker-registry says 0-0 of an empty upload; one of a single byte is never begun here.
        return int(match[1]) + 1 if match and match[1] != "0" else 0

    def _commit(self, part: bytes, blob: Descriptor) -> None:
        mark = "&" if "?" in self._location else "?"
        url = f"{self._location}{mark}digest={blob.digest}"
        self._ask("PUT", url, part, (201, 204), headers={"Content-Type": _OCTETS})

    def _ask(
        self,
        method: str,
        url: str,
        data: bytes | None,
        expected: tuple[int, ...],
        *,
        headers: dict[str, str] | None = None,
        again: bool = True,
    ) -> str:
        """Send a request of this upload, and return the range that the registry has."""
        with self._client.answer(
            method,
            url,
            scope=self._scope,
            doing=f"cannot write to {self._client.endpoint.host}",
            expected=expected,
            headers=headers,
            data=data,
            again=again,
        ) as response:
            if "Location" in response.headers and method != "PUT":
                self._location = _location(response)
            return response.headers.get("Range", "")


def _location(response: requests.Response) -> str:
    location = response.headers.get("Location")
    if not location:
        raise StoreError(f"{response.url} does not say where to send the blob")
    return urljoin(response.url, location)


def _parts(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of one size, as registries want them; the last may be smaller."""
    gathered = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = PART_BYTES - len(gathered)
            gathered += view[:room]
            view = view[room:]
            if len(gathered) == PART_BYTES:
                yield bytes(gathered)
                gathered.clear()
    if gathered:
        yield bytes(gathered)
