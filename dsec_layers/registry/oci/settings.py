"""How registries of images are reached: mirrors, plain HTTP and authorities, from a file.

# registries.toml in DSEC_HOME, or the file that $DSEC_REGISTRIES names
[registry."docker.io"]
mirrors = ["mirror.example.com/hub"]    # read from first, in this order

[registry."registry.example.com:5000"]  # a host, or a host and the start of a path
plain_http = true
ca = "/etc/ssl/example.pem"
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.imagename import ImageName
from dsec_layers.registry.oci.endpoint import Endpoint

VARIABLE: Final = "DSEC_REGISTRIES"
FILE_NAME: Final = "registries.toml"


class _Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mirrors: tuple[str, ...] = ()
    plain_http: bool = False
    ca: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    registry: dict[str, _Registry] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an image may be: the repository `path` of a registry."""

    endpoint: Endpoint
    path: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says; nothing is the default."""

    registries: Mapping[str, _Registry] = field(default_factory=dict)

    @classmethod
    def load(cls, home: Path, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the file, if there is one. Raises InvalidInputError."""
        named = environ.get(VARIABLE)
        path = Path(named) if named else home / FILE_NAME
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if named:
                raise InvalidInputError(
                    f"there is no file {path}", hint=f"{VARIABLE} names it"
                ) from None
            return cls()
        try:
            return cls(msgspec.toml.decode(data, type=_File).registry)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInputError(str(error), where=str(path)) from error

    def origin(self, name: ImageName) -> Place:
        """The registry that the name says, where images are sent to."""
        return Place(self._endpoint(name.host, name.repository), name.path)

    def places(self, name: ImageName) -> Iterator[Place]:
        """Where to look for an image: the mirrors of the longest prefix, then its registry."""
        prefix, found = self._section(name.repository)
        for mirror in found.mirrors:
            rest = name.repository[len(prefix) :].strip("/")
            host, _, path = f"{mirror.strip('/')}/{rest}".partition("/")
            yield Place(self._endpoint(host, f"{host}/{path}"), path)
        yield self.origin(name)

    def _endpoint(self, host: str, repository: str) -> Endpoint:
        _, found = self._section(repository)
        return Endpoint(host, found.plain_http, Path(found.ca) if found.ca else None)

    def _section(self, repository: str) -> tuple[str, _Registry]:
        """The section with the longest name that `repository` starts with."""
        fitting = [
            name for name in self.registries if f"{repository}/".startswith(f"{name.strip('/')}/")
        ]
        longest = max(fitting, key=len, default="")
        return longest.strip("/"), self.registries.get(longest, _Registry())
