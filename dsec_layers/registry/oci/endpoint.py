"""Which registry is spoken to, and how: its address, plain or by TLS, by which authority."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.imagename import HUB

SCHEME: Final = "oci"
PLAIN_SCHEME: Final = "oci+http"
_HUB_ADDRESS: Final = "registry-1.docker.io"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PREFIX: Final = re.compile(rf"(?:{_COMPONENT}(?:/{_COMPONENT})*)?")
_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?|\[[0-9a-f:]+\](:\d+)?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A registry. `ca` is a file of certificates to trust instead of those of this machine."""

    host: str
    plain_http: bool = False
    ca: Path | None = None

    @property
    def address(self) -> str:
        """Host and port that answer: Docker Hub has its interface on a host of its own."""
        return _HUB_ADDRESS if self.host == HUB else self.host

    @property
    def origin(self) -> str:
        """The start of all its URLs."""
        return f"{'http' if self.plain_http else 'https'}://{self.address}"

    @property
    def verify(self) -> bool | str:
        """By what certificates are judged, as `requests` wants it.

        That is `ca`, else what $SSL_CERT_FILE or $SSL_CERT_DIR names, else those of the system.
        """
        if self.ca is not None:
            return str(self.ca)
        paths = ssl.get_default_verify_paths()
        if os.environ.get("REQUESTS_CA_BUNDLE"):
            return os.environ["REQUESTS_CA_BUNDLE"]
        if paths.cafile:
            return paths.cafile
        return paths.capath if paths.capath and any(Path(paths.capath).iterdir()) else True


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store in a registry: all repositories below `prefix`, which may be empty."""

    endpoint: Endpoint
    prefix: str

    @classmethod
    def parse(cls, url: str) -> StoreAddress:
        """Parse `oci://host[:port][/prefix][?ca=FILE]`, or `oci+http://` without TLS.

        Raises InvalidInputError.
        """
        scheme = url.partition("://")[0]
        hint = f"write {SCHEME}://registry/prefix, or {PLAIN_SCHEME}:// for one without TLS"
        try:
            parts = urlsplit(url)
            query = parse_qs(parts.query, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise InvalidInputError(f"not the URL of a store: {url!r}", hint=hint) from error
        if "@" in parts.netloc:
            raise InvalidInputError(
                "the URL of a registry holds no name and password",
                hint="sign in with `skopeo login` or `docker login`, whose files are read",
            )
        prefix = unquote(parts.path).strip("/")
        ca = query.pop("ca", [""])[-1]
        host = parts.netloc.lower()
        if query or parts.fragment or not _HOST.fullmatch(host) or not _PREFIX.fullmatch(prefix):
            raise InvalidInputError(f"not the URL of a store: {url!r}", hint=hint)
        if ca and not Path(ca).is_file():
            raise InvalidInputError(f"there is no file of certificates {ca}")
        plain = scheme == PLAIN_SCHEME
        return cls(Endpoint(host, plain, Path(ca) if ca else None), prefix)

    @property
    def url(self) -> str:
        """The URL again."""
        scheme = PLAIN_SCHEME if self.endpoint.plain_http else SCHEME
        ca = f"?ca={quote(str(self.endpoint.ca))}" if self.endpoint.ca else ""
        return f"{scheme}://{self.endpoint.host}" + (f"/{self.prefix}" if self.prefix else "") + ca

    def repository(self, name: str) -> str:
        """The repository `name` of this store as the registry knows it."""
        return f"{self.prefix}/{name}" if self.prefix else name
