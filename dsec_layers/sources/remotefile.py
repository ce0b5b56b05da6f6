"""What is said of a file to fetch: its name, and the checksum that it must have."""

from __future__ import annotations

import posixpath
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from dsec_layers.errors import InvalidInputError

_ALGORITHMS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}


class Checksum(msgspec.Struct, frozen=True):
    """`sha256:<hex>`, or sha384 or sha512."""

    algorithm: str
    hex: str

    @classmethod
    def parse(cls, text: str) -> Checksum:
        """Raises ValueError."""
        algorithm, _, value = text.partition(":")
        length = _ALGORITHMS.get(algorithm)
        if length is None or len(value) != length or set(value) - set("0123456789abcdef"):
            known = ", ".join(_ALGORITHMS)
            raise ValueError(f"the checksum {text!r} is not of the form ALGORITHM:HEX ({known})")
        return cls(algorithm, value)

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"


def file_name(url: str) -> str:
    """The name that a file gets from its URL, maybe empty. Raises InvalidInputError."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in ("http", "https") and parts.username is None:
            name = unquote(posixpath.basename(parts.path))
            return "" if "/" in name or "\0" in name or name in (".", "..") else name
    except ValueError:
        pass
    raise InvalidInputError(
        "a URL is not of the form http(s)://host/path",
        hint="names and passwords go into a RUN with --mount=type=secret",
    )
