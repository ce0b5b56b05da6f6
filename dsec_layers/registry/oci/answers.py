"""What a registry says: read within bounds, and turned into our errors."""

from __future__ import annotations

import contextlib
import email.utils
import json
import time
from typing import Final
from urllib.parse import urlsplit

import requests
import urllib3

from dsec_layers.errors import DsecError, NoSpaceError, NotFoundError, StoreError

_TOLD_BYTES: Final = 8 << 10
_SMALL_BYTES: Final = 64 << 10
_MOST_TEXT: Final = 300
_NO_SPACE: Final = 507
# What goes wrong while a body is read.
BROKEN: Final = (urllib3.exceptions.HTTPError, requests.RequestException, OSError)


def bounded(response: requests.Response, most_bytes: int) -> bytes:
    """The whole body. Raises StoreError when it is longer, one of `BROKEN` when it breaks off."""
    data: bytes = response.raw.read(most_bytes + 1, decode_content=False)
    if len(data) <= most_bytes and response.raw.read(1, decode_content=False) == b"":
        return data
    raise StoreError(f"the answer of {_place(response)} has more than {most_bytes} bytes")


def finish(response: requests.Response) -> None:
    """Read what is left when that is little, so that the connection is used again, and close."""
    with contextlib.suppress(*BROKEN, ValueError):
        if int(response.headers.get("Content-Length", _SMALL_BYTES + 1)) <= _SMALL_BYTES:
            response.raw.read(_SMALL_BYTES, decode_content=False)
    response.close()


def told(response: requests.Response) -> str:
    """Status and what the registry says about it, on one line."""
    said = ""
    with contextlib.suppress(*BROKEN):
        said = _messages(response.raw.read(_TOLD_BYTES, decode_content=False))
    return f"{response.status_code} {response.reason or ''}".strip() + (f" ({said})" * bool(said))


def failure(response: requests.Response, doing: str) -> DsecError:
    """The error for an answer that is none of the expected ones."""
    status = response.status_code
    message = f"{doing}: {_place(response)} says {told(response)}"
    if status == requests.codes.not_found:
        return NotFoundError(message)
    if status in (requests.codes.unauthorized, requests.codes.forbidden):
        return StoreError(message, hint=sign_in_hint(_place(response)))
    if status == _NO_SPACE:
        return NoSpaceError(message)
    return StoreError(message)


def sign_in_hint(host: str) -> str:
    """How to get credentials."""
    return f"sign in with `skopeo login {host}` or `docker login {host}`, and see who may do this"


def retry_after_s(response: requests.Response) -> float | None:
    """What the answer asks to wait, in seconds, or None."""
    text = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _place(response: requests.Response) -> str:
    return urlsplit(response.url or "").netloc.rpartition("@")[2]


def _messages(data: bytes) -> str:
    """The messages of the errors in the form of the specification, else the text."""
    try:
        errors = json.loads(data)["errors"]
        found = [f"{each.get('code', '')}: {each.get('message', '')}" for each in errors]
        text = "; ".join(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        text = data.decode(errors="replace") if not data.lstrip().startswith(b"<") else ""
    return " ".join(text.split())[:_MOST_TEXT]
