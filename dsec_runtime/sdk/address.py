"""Where the edge is: $DSEC_EDGE, else the Unix socket of this machine's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from dsec_runtime.errors import InvalidRequestError

_SOCKET = Path("run/edge.sock")


class Address(NamedTuple):
    """`socket` for an edge on this machine; else `base` is its `https://host:port`."""

    socket: str | None
    base: str

    def __str__(self) -> str:
        return f"unix://{self.socket}" if self.socket else self.base


def parse(text: str | None = None) -> Address:
    """`unix:///path` or `https://host:port`; None is what the environment says.

    Plain `http://` is refused, because tokens would be seen. Raises InvalidRequestError.
    """
    text = text or os.environ.get("DSEC_EDGE") or f"unix://{_home() / _SOCKET}"
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return Address(parts.path, "http://edge")
    if parts.scheme == "https" and parts.hostname:
        return Address(None, text.rstrip("/"))
    raise InvalidRequestError(
        f"{text!r} is no address of an edge", hint="write unix:///PATH or https://HOST:PORT"
    )


def _home() -> Path:
    from dsec_layers.registry.local import Home

    return Home.default().root
