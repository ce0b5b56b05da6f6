"""Whether a server keeps the conditions of a write: without them there is no compare and swap.

Some servers answer a conditional PUT like any other and overwrite what others wrote. That is found
out once for each opened store, on an object of no meaning, and then guarded tags are refused.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from typing import Final

from botocore.exceptions import ClientError

from dsec_layers.errors import StoreError
from dsec_layers.registry.s3.bucket import Bucket, Refused
from dsec_layers.registry.s3.failures import status_of

FOLDER: Final = "probes"
_WRONG_ETAG: Final = f'"{"0" * 32}"'


class Guards:
    """What is known of one server. Safe for many threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._kept: bool | None = None

    def require(self) -> None:
        """Raise StoreError when the server does not keep conditions."""
        with self._lock:
            if self._kept is None:
                self._kept = self._probe()
        if not self._kept:
            raise StoreError(
                f"{self._bucket.url}: its server ignores If-None-Match and If-Match, so a tag "
                "cannot be compared and swapped there",
                hint="use a server that keeps them, or set the tag without a condition",
            )

    def _probe(self) -> bool:
        name = f"{FOLDER}/{secrets.token_hex(16)}"
        self._bucket.put(name, b"")
        try:
            return self._refuses(name, absent=True) and self._refuses(name, etag=_WRONG_ETAG)
        finally:
            with contextlib.suppress(StoreError):  # an empty object of no meaning
                self._bucket.delete(name)

    def _refuses(self, name: str, *, absent: bool = False, etag: str = "") -> bool:
        try:
            self._bucket.put(name, b"", absent=absent, etag=etag)
        except Refused:
            return True
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and status_of(cause) in (400, 501):
                return False  # it knows that it does not know them
            raise
        return False
