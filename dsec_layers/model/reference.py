"""References: the names people give to layers and environments, `kind/name[:tag][@sha256:...]`."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.digest import Digest

DEFAULT_TAG = "latest"
_COMPONENT = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_PATTERN = re.compile(
    rf"(?P<kind>[a-z]+)/(?P<name>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_HINT = "a reference is kind/name[:tag][@sha256:...], kind one of base, workspace, toolkit, env"


class Kind(StrEnum):
    """What a reference names.

    The first three are kinds of layers; an environment is a composition of them. What is in `cache`
    has the form of a layer, but is there for builds: nobody mounts or composes it.
    """

    BASE = "base"
    WORKSPACE = "workspace"
    TOOLKIT = "toolkit"
    ENV = "env"
    CACHE = "cache"

    @property
    def rank(self) -> int:
        """Position in the stack of an environment.

        Base lowest, then the workspace, then toolkits.
        """
        return list(Kind).index(self)


class Reference(msgspec.Struct, frozen=True, order=True):
    """A parsed reference.

    `tag` is always set unless `digest` alone was given, in which case it is empty.
    """

    kind: Kind
    name: str
    tag: str = DEFAULT_TAG
    digest: Digest | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse a reference.

        Without tag and digest the tag is `latest`. Raises InvalidInputError.
        """
        match = _PATTERN.fullmatch(text)
        if match is None or len(text) > 512 or match["kind"] not in list(Kind):
            raise InvalidInputError(f"not a reference: {text!r}", hint=_HINT)
        digest = Digest.parse(match["digest"]) if match["digest"] else None
        tag = match["tag"] or ("" if digest else DEFAULT_TAG)
        return cls(Kind(match["kind"]), match["name"], tag, digest)

    @property
    def repository(self) -> str:
        """`kind/name`, without tag and digest."""
        return f"{self.kind.value}/{self.name}"

    def pinned(self, digest: Digest) -> Reference:
        """The same reference bound to `digest`."""
        return msgspec.structs.replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")
