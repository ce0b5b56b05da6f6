"""Who we are to a registry: the files and helpers of Docker, skopeo and podman.

Looked into, in order, are the file that $REGISTRY_AUTH_FILE names, `config.json` in
$DOCKER_CONFIG, `containers/auth.json` in $XDG_RUNTIME_DIR, and `~/.docker/config.json`. In each,
the entry of the longest name that fits counts; then the helper of the host, then the general one.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError, StoreError
from dsec_layers.linux import process
from dsec_layers.model.imagename import HUB

_HUB_KEY: Final = "https://index.docker.io/v1/"
_HELPER_TIMEOUT_S: Final = 60
_TOKEN_USER: Final = "<token>"  # noqa: S105 # what helpers write where a token takes the place


@dataclass(frozen=True, slots=True)
class Credentials:
    """Name and password, or an identity token, with which access tokens are asked for."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


class _Entry(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Config(
    msgspec.Struct, frozen=True, rename={"helpers": "credHelpers", "store": "credsStore"}
):
    auths: dict[str, _Entry] = {}
    helpers: dict[str, str] = {}
    store: str = ""


def find(
    host: str, repository: str = "", environ: Mapping[str, str] = os.environ
) -> Credentials | None:
    """The credentials for a repository of a registry, or None.

    Raises InvalidInputError for a malformed file, StoreError for a helper that fails.
    """
    for path in _files(environ):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        found = _in_file(_parse(data, path), path, host, repository)
        if found is not None:
            return found
    return None


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    if named := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    if folder := environ.get("DOCKER_CONFIG"):
        yield Path(folder) / "config.json"
    if folder := environ.get("XDG_RUNTIME_DIR"):
        yield Path(folder) / "containers" / "auth.json"
    else:
        yield Path(f"/run/containers/{os.getuid()}/auth.json")
    if home := environ.get("HOME"):
        yield Path(home) / ".docker" / "config.json"


def _parse(data: bytes, path: Path) -> _Config:
    try:
        return msgspec.json.decode(data or b"{}", type=_Config)
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"cannot read credentials: {error}", where=str(path)) from error


def _in_file(config: _Config, path: Path, host: str, repository: str) -> Credentials | None:
    for key in _keys(host, repository):
        entry = config.auths.get(key)
        if entry is not None and (found := _of_entry(entry, path)):
            return found
    server = _HUB_KEY if host == HUB else host
    helper = config.helpers.get(host) or config.helpers.get(server) or config.store
    return _ask_helper(helper, server) if helper else None


def _keys(host: str, repository: str) -> Iterator[str]:
    """The names under which an entry may stand, the longest first."""
    parts = [host, *filter(None, repository.split("/"))]
    for count in range(len(parts), 0, -1):
        yield "/".join(parts[:count])
    yield from (f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/")
    if host == HUB:
        yield from (_HUB_KEY, "index.docker.io")


def _of_entry(entry: _Entry, path: Path) -> Credentials | None:
    user, password = entry.username, entry.password
    if entry.auth:
        try:
            user, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidInputError("an `auth` is not base64", where=str(path)) from error
    password = password.rstrip("\0")
    if not (user or entry.identitytoken):
        return None  # an empty entry says that a helper keeps the secret
    return Credentials(user, password, entry.identitytoken)


def _ask_helper(name: str, server: str) -> Credentials | None:
    program = f"docker-credential-{name}"
    try:
        ran = process.run(
            [program, "get"], stdin=server.encode(), check=False, timeout_s=_HELPER_TIMEOUT_S
        )
    except TimeoutError as error:
        raise StoreError(f"the credential helper {program} does not answer") from error
    if ran.status:
        said = (ran.stdout + ran.stderr).decode(errors="replace").strip()
        if "credentials not found" in said.lower():
            return None
        raise StoreError(f"the credential helper {program} failed: {said[:200] or ran.status}")
    try:
        answer = json.loads(ran.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the credential helper {program} gave no credentials") from error
    if user == _TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(user, secret)
