"""Digests: the names of immutable things, written `algorithm:hex`.

Blobs and manifests are named by sha256, as OCI asks. File contents, chunks and trees are named by
blake3.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from dsec_layers.errors import InvalidInputError

_PATTERN = re.compile(r"(sha256|blake3):([0-9a-f]{64})")


class Digest(msgspec.Struct, frozen=True, order=True):
    """One digest. `hex` is 64 lower-case hexadecimal digits for both algorithms."""

    algorithm: str
    hex: str

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse `sha256:<64 hex>` or `blake3:<64 hex>`. Raises InvalidInputError."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidInputError(
                f"not a digest: {text!r}",
                hint="a digest is sha256: or blake3: followed by 64 hexadecimal digits",
            )
        return cls(match[1], match[2])

    @classmethod
    def sha256(cls, data: bytes) -> Digest:
        """The sha256 digest of `data`."""
        return cls("sha256", hashlib.sha256(data).hexdigest())

    @property
    def short(self) -> str:
        """The first twelve hexadecimal digits, for people."""
        return self.hex[:12]

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"
