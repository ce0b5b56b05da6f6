"""Fetching one file by HTTP, within bounds of size and time."""

from __future__ import annotations

import email.utils
import hashlib
import http.client
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.linux import cancelling
from dsec_layers.sources.remotefile import Checksum

_AGENT: Final = "dsec-layers"
_PIECE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes of a file, and seconds: of silence, and of the whole."""

    size_bytes: int = 16 << 30
    silence_s: float = 60
    whole_s: float = 3600


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
