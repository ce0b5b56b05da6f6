"""Blobs and manifests of one repository, read: whole, in ranges, and on after an interruption."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import requests

from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError, StoreError
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor
from dsec_layers.registry import checked
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES
from dsec_layers.registry.oci import answers
from dsec_layers.registry.oci.client import Client, pull_scope

PIECE_BYTES: Final = 1 << 20
PIECE_S: Final = 120.0  # for a piece: who sends less than 10 KiB a second does not serve
MANIFEST_TYPES: Final = (OCI_MANIFEST, OCI_INDEX)
_ACCEPTED: Final = ", ".join(
    (
        *MANIFEST_TYPES,
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class RepositoryReader:
    """Reads one repository. Safe for many threads."""

    def __init__(self, client: Client, repository: str) -> None:
        self.client = client
        self.repository = repository

    def has(self, blob: Descriptor) -> bool:
        """Whether the blob is there with this size. Raises StoreError."""
        doing = f"cannot look for {blob.digest}"
        headers = {"Accept": blob.media_type} if blob.media_type in MANIFEST_TYPES else {}
        path, scope = self._path(blob), pull_scope(self.repository)
        with self.client.answer(
            "HEAD", path, scope=scope, doing=doing, headers=headers, expected=(200, 403, 404, 405)
        ) as response:
            status = response.status_code
            size = response.headers.get("Content-Length")
        if status == requests.codes.not_found:
            return False
        if status == requests.codes.ok and size is not None:
            return int(size) == blob.size
        # Some allow no HEAD, or sign URLs for GET alone.
        with self.client.answer(
            "GET", path, scope=scope, doing=doing, headers=headers, expected=(200, 404)
        ) as response:
            found = response.headers.get("Content-Length")
            return response.status_code == requests.codes.ok and found in (None, str(blob.size))

    def read(self, blob: Descriptor, offset: int, length: int) -> bytes:
        """Exactly these bytes, unchecked. Raises NotFoundError, CorruptError or StoreError."""
        return b"".join(self.pieces(blob, offset, length)) if length else self._nothing(blob)

    def stream(self, blob: Descriptor) -> checked.CheckedPieces:
        """See `BlobReader.stream`."""
        sent = self.pieces(blob, 0, blob.size)
        return checked.CheckedPieces(blob, sent, self.client.endpoint.host)

    def pieces(self, blob: Descriptor, offset: int, length: int) -> Iterator[bytes]:
        """The bytes of a range in pieces; when the transfer breaks off, it goes on from there.

        Each time the registry is asked anew, for the URL that it gave may have expired.
        """
        end, breaks = offset + length, 0
        while offset < end:
            reached = offset
            try:
                for piece in self._once(blob, offset, end):
                    yield piece
                    offset += len(piece)
            except answers.BROKEN as error:
                breaks = 0 if offset > reached else breaks + 1
                if breaks >= self.client.patience.attempts:
                    raise StoreError(
                        f"{self.client.endpoint.host} keeps breaking off {blob.digest}: {error}"
                    ) from error
                self.client.pause(breaks)

    def document(self, name: str) -> tuple[bytes, str]:
        """A manifest or index by tag or digest: its bytes, checked, and its media type.

        Raises NotFoundError, CorruptError or StoreError.
        """
        path = f"/v2/{self.repository}/manifests/{name}"
        response, data = self.client.whole(
            path,
            scope=pull_scope(self.repository),
            doing=f"cannot read {self.repository}:{name}",
            most_bytes=MAX_DOCUMENT_BYTES,
            headers={"Accept": _ACCEPTED},
        )
        told = response.headers.get("Docker-Content-Digest", "")
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        found = str(Digest.sha256(data))
        for expected in (name, told):
            if expected.startswith("sha256:") and expected != found:
                raise CorruptError(f"{path} has the digest {found} instead of {expected}")
        return data, media_type

    def _once(self, blob: Descriptor, offset: int, end: int) -> Iterator[bytes]:
        is_part = (offset, end) != (0, blob.size)
        headers = {"Range": f"bytes={offset}-{end - 1}"} if is_part else {}
        if blob.media_type in MANIFEST_TYPES:
            headers["Accept"] = blob.media_type
        with self.client.answer(
            "GET",
            self._path(blob),
            scope=pull_scope(self.repository),
            doing=f"cannot read {blob.digest}",
            headers=headers,
            expected=(200, 206, 416),
        ) as response:
            skip = _skipped(response, blob, offset, end)
            for piece in _body(response, skip + end - offset):
                if len(piece) > skip:
                    yield piece[skip:]
                skip = max(0, skip - len(piece))

    def _nothing(self, blob: Descriptor) -> bytes:
        """No byte of a blob, which must be there all the same."""
        if not self.has(blob):
            raise NotFoundError(f"{blob.digest} is not in {self.repository}")
        return b""

    def _path(self, blob: Descriptor) -> str:
        if blob.parsed_digest.algorithm != "sha256":
            raise InvalidInputError(f"blobs are named by sha256, not {blob.digest}")
        kind = "manifests" if blob.media_type in MANIFEST_TYPES else "blobs"
        return f"/v2/{self.repository}/{kind}/{blob.digest}"


def _skipped(response: requests.Response, blob: Descriptor, offset: int, end: int) -> int:
    """How many bytes come before those that were asked for. Raises CorruptError or StoreError.

    Who knows no ranges sends all; what comes before is read over.
    """
    if response.status_code == requests.codes.requested_range_not_satisfiable:
        raise CorruptError(f"blob {blob.digest} is shorter than {end} bytes in the registry")
    length = response.headers.get("Content-Length")
    if response.status_code == requests.codes.ok:
        if length is not None and int(length) != blob.size:
            raise CorruptError(f"blob {blob.digest} has {length} bytes instead of {blob.size}")
        return offset
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != offset:
        raise StoreError(f"the registry answers for another range of {blob.digest}")
    if match[3] not in ("*", str(blob.size)) or int(match[2]) != end - 1:
        raise CorruptError(f"blob {blob.digest} has {match[3]} bytes instead of {blob.size}")
    return 0


def _body(
    response: requests.Response, length: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[bytes]:
    """The first `length` bytes in pieces. Raises one of `answers.BROKEN` when there are fewer."""
    left = length
    while left:
        piece, broken = _piece(response, min(left, PIECE_BYTES), clock)
        left -= len(piece)
        if piece:
            yield piece
        if broken is not None:
            raise broken


def _piece(
    response: requests.Response, length: int, clock: Callable[[], float]
) -> tuple[bytes, Exception | None]:
    """The next bytes, and why they are fewer."""
    parts: list[bytes] = []
    left, started = length, clock()
    try:
        while left:
            part = response.raw.read1(left, decode_content=False)
            if not part:
                raise ConnectionError("it ends too early")
            parts.append(part)
            left -= len(part)
            if clock() - started > PIECE_S:
                raise TimeoutError(f"{length} bytes take more than {PIECE_S:.0f} s")
    except answers.BROKEN as error:
        return b"".join(parts), error
    return b"".join(parts), None
