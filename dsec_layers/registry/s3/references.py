"""References as small objects, swapped by the conditions of a PUT.

    refs/<kind>/<name>/@<tag>.json    the descriptor in canonical JSON

Each writer leaves a random word in the metadata of the object: who has lost the answer to a PUT,
and is refused when asking again, sees by it that the tag is its own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dsec_layers.errors import BusyError, InvalidInputError, NotFoundError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.naming import reference_name
from dsec_layers.registry.references import check_guard, decode_target
from dsec_layers.registry.s3.bucket import Bucket, Found, Refused
from dsec_layers.registry.s3.guards import Guards

MAX_BYTES: Final = 64 << 10
_FOLDER: Final = "refs"
_NAME: Final = re.compile(r"refs/([a-z]+)/(.+)/@([^/]+)\.json")
_WRITER: Final = "writer"
_READERS: Final = 32
_BATCH: Final = 8 * _READERS
_ATTEMPTS: Final = 20


class S3References:
    """The references of one store. Safe for many threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._guards = Guards(bucket)

    def read(self, reference: Reference) -> Descriptor | None:
        """The descriptor of a tag, or None. One request. Raises CorruptError or StoreError."""
        found = self._found(reference)
        return found and found[0]

    def write(
        self, reference: Reference, target: Descriptor, expected: Descriptor | bool | None
    ) -> None:
        """Point a tag to `target`.

        Raises ConflictError when `expected` does not hold, StoreError, also when it is given and
        the server cannot compare, or NoSpaceError.
        """
        name, data = f"{_FOLDER}/{reference_name(reference)}", canonical.encode(target)
        if isinstance(expected, bool):
            self._bucket.put(name, data)
            return
        self._guards.require()
        writer = {_WRITER: secrets.token_hex(16)}
        found = self._found(reference)
        for _ in range(_ATTEMPTS):
            check_guard(reference, expected, found and found[0])
            etag = found[1].etag if found else ""
            try:
                self._bucket.put(name, data, absent=found is None, etag=etag, metadata=writer)
            except Refused:
                found = self._found(reference)
                if not (found and found[1].metadata == writer):
                    continue
            return
        raise BusyError(f"others keep writing {reference} in {self._bucket.url}", hint="try again")

    def remove(self, reference: Reference) -> None:
        """Remove a tag. Raises NotFoundError or StoreError."""
        name = f"{_FOLDER}/{reference_name(reference)}"
        if self._bucket.head(name) is None:
            raise NotFoundError(f"no such tag: {reference}")
        self._bucket.delete(name)

    def list(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """All tags in reference order; many are read at once. Raises CorruptError or StoreError."""
        kinds = (kind,) if kind else tuple(Kind)
        rest = "" if name is None else f"{name}/@"
        folders = [f"{_FOLDER}/{each.value}/{rest}" for each in kinds]
        names = (found.name for folder in folders for found in self._bucket.list(folder))
        references = sorted(filter(None, map(_reference, names)))
        with ThreadPoolExecutor(_READERS, thread_name_prefix="s3-tags") as pool:
            for start in range(0, len(references), _BATCH):
                some = references[start : start + _BATCH]
                for reference, target in zip(some, pool.map(self.read, some), strict=True):
                    if target:  # None: removed since
                        yield reference, target

    def _found(self, reference: Reference) -> tuple[Descriptor, Found] | None:
        name = f"{_FOLDER}/{reference_name(reference)}"
        answer = self._bucket.get(name, MAX_BYTES)
        if answer is None:
            return None
        return decode_target(answer[0], f"{name} in {self._bucket.url}"), answer[1]


def _reference(name: str) -> Reference | None:
    """The reference of an object; None for one that something else has put there."""
    match = _NAME.fullmatch(name)
    try:
        return match and Reference.parse(f"{match[1]}/{match[2]}:{match[3]}")
    except InvalidInputError:
        return None
