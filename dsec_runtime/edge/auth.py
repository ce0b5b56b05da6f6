"""Who may ask: bearer tokens, of which only hashes are kept.

A line of the file is `NAME SHA256` or `NAME SHA256 operator`; tokens are random, so a plain hash
keeps them. An operator sees all sandboxes of the node, the others see their own. The file is read
anew when it has changed; one that cannot be read or understood lets nobody in.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from dsec_runtime.edge.principal import Principal
from dsec_runtime.errors import InvalidRequestError, UnauthorizedError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_BEARER: Final = "bearer "

_log = structlog.get_logger("dsec.edge.auth")


class Tokens:
    """The tokens of the file at `path`. Raises InvalidRequestError when it is of no use now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._now()
        self._known = read(path)
        if not self._known:
            raise InvalidRequestError(
                f"{path} has no token", hint="`dsec edge token NAME` makes one"
            )

    def principal(self, authorization: str | None) -> Principal:
        """Whose token stands in an Authorization header. Raises UnauthorizedError."""
        self._refresh()
        if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
            raise UnauthorizedError("a bearer token is needed", hint="set DSEC_TOKEN")
        found = self._known.get(digest(authorization[len(_BEARER) :].strip()))
        if found is None:
            raise UnauthorizedError("this token is not known here")
        return found

    def _refresh(self) -> None:
        stamp = self._now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._known = read(self._path)
        except InvalidRequestError as error:
            self._known = {}
            _log.error("tokens-unusable", error=error.message)

    def _now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_mtime_ns, found.st_size)


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read(path: Path) -> Mapping[str, Principal]:
    """Principals by the hash of their token. Raises InvalidRequestError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the tokens cannot be read: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not _is_entry(words):
            raise InvalidRequestError(f"{path}:{number}: not NAME SHA256 [operator]")
        found[words[1]] = Principal(words[0], len(words) == 3)
    return found


def add(path: Path, name: str, *, operator: bool = False) -> str:
    """Make a token for `name` and keep its hash in the file; the token. InvalidRequestError."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(f"{name!r} is no name for a token", hint="letters, digits, . _ -")
    token = secrets.token_urlsafe(32)
    words = [name, digest(token), *(["operator"] if operator else [])]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(" ".join(words) + "\n")
    return token


def _is_entry(words: list[str]) -> bool:
    return (
        len(words) in (2, 3)
        and _NAME.fullmatch(words[0]) is not None
        and _HASH.fullmatch(words[1]) is not None
        and words[2:] in ([], ["operator"])
    )
