"""Fetching one file by HTTP, within bounds of size and time."""

from __future__ import annotations

import email.utils
import hashlib
import http.client
import posixpath
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.linux import cancelling

_AGENT: Final = "dsec-layers"
_PIECE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes of a file, and seconds: of silence, and of the whole."""

    size_bytes: int = 16 << 30
    silence_s: float = 60
    whole_s: float = 3600


@dataclass(frozen=True, slots=True)
class Checksum:
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


_ALGORITHMS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}


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


def fetch(
    url: str,
    target: Path,
    checksum: Checksum | None = None,
    *,
    limits: Limits = Limits(),
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Write what `url` gives to the new file `target`; returns its Last-Modified time, else 0.

    The time is in seconds. Redirects are followed to http and https only, proxies are those of our
    environment. Raises CorruptError (another checksum, or cut short), InvalidInputError (longer
    than `limits` allow) and OSError (no answer, an error of the server, too slow).
    """
    started = clock()
    hasher = hashlib.new(checksum.algorithm if checksum else "sha256")
    plain = quote(url, safe=string.punctuation)  # what is no ASCII, and white space
    request = urllib.request.Request(plain, headers={"User-Agent": _AGENT})  # noqa: S310 # see below
    try:
        with _opener().open(request, timeout=limits.silence_s) as answer, target.open("xb") as file:
            size = 0
            while piece := answer.read1(_PIECE):
                cancelling.check()
                size += len(piece)
                if size > limits.size_bytes:
                    raise InvalidInputError(f"{url} has more than {limits.size_bytes} bytes")
                if clock() - started > limits.whole_s:
                    raise TimeoutError(f"{url} takes more than {limits.whole_s:.0f} seconds")
                hasher.update(piece)
                file.write(piece)
            if answer.length:  # what is left of the announced length
                raise CorruptError(f"{url} was cut short: {answer.length} bytes are missing")
            modified = _seconds(answer.headers.get("Last-Modified"))
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise
    except (http.client.HTTPException, ValueError) as error:  # what a server says may be malformed
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error
    if checksum is not None and hasher.hexdigest() != checksum.hex:
        raise CorruptError(f"{url} has the checksum {checksum.algorithm}:{hasher.hexdigest()}")
    return modified


def _opener() -> urllib.request.OpenerDirector:
    """Without the handlers of other schemes, to which a server could redirect."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _seconds(text: str | None) -> int:
    try:
        return max(0, int(email.utils.parsedate_to_datetime(text).timestamp())) if text else 0
    except (ValueError, OverflowError):
        return 0
