"""Names of images in registries, as Docker reads them: `[host[:port]/]path[:tag][@sha256:...]`."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import DEFAULT_TAG, Kind, Reference

HUB: Final = "docker.io"
_HUB_NAMES: Final = ("index.docker.io", "registry-1.docker.io")
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_REST: Final = re.compile(
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_HINT: Final = "an image is [registry/]name[:tag][@sha256:...], as in python:3.11-slim"


class ImageName(msgspec.Struct, frozen=True):
    """A name with all that may be left out filled in.

    Without a tag it has a digest, which decides whenever it is there.
    """

    host: str
    path: str
    tag: str = DEFAULT_TAG
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> ImageName:
        """Parse what a user or a Dockerfile writes. Raises InvalidInputError."""
        host, slash, rest = text.partition("/")
        if not slash or not (set(".:") & set(host) or host == "localhost"):
            host, rest = HUB, text
        host = host.lower()
        host = HUB if host in _HUB_NAMES else host
        match = _REST.fullmatch(rest)
        if match is None or not _HOST.fullmatch(host) or len(text) > 512:
            raise InvalidInputError(f"not the name of an image: {text!r}", hint=_HINT)
        path = match["path"]
        if host == HUB and "/" not in path:
            path = f"library/{path}"
        digest = match["digest"] or ""
        return cls(host, path, match["tag"] or ("" if digest else DEFAULT_TAG), digest)

    @property
    def repository(self) -> str:
        """Host and path, without tag and digest."""
        return f"{self.host}/{self.path}"

    @property
    def manifest(self) -> str:
        """What the registry is asked for: the digest, else the tag."""
        return self.digest or self.tag

    @property
    def base(self) -> Reference:
        """The base layer that is made of the image.

        A port stands behind an underscore, which no host has. The tag of a digest is its digest.
        """
        tag = f"sha256.{Digest.parse(self.digest).hex}" if self.digest else self.tag
        return Reference(Kind.BASE, self.repository.replace(":", "_"), tag)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")
