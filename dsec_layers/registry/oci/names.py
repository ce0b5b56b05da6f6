"""What things are called in a registry."""

from __future__ import annotations

import re
from typing import Final

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference

COMMON: Final = "blobs"  # no kind of layers
_INTERNAL: Final = re.compile(r"(?:keep|sha256)-[0-9a-f]{64}")


def kept_tag(digest: str) -> str:
    """The tag that keeps a manifest where registries remove those without one."""
    return digest.replace("sha256:", "keep-")


def referrers_tag(digest: str) -> str:
    """The tag of the list of referrers, where the registry keeps none itself."""
    return digest.replace("sha256:", "sha256-")


def is_internal(tag: str) -> bool:
    """Whether a tag is none that a user gave."""
    return _INTERNAL.fullmatch(tag) is not None


def reference_of(repository: str, tag: str) -> Reference | None:
    """The reference that a repository (without the prefix of the store) and a tag stand for."""
    if is_internal(tag):
        return None
    try:
        return Reference.parse(f"{repository}:{tag}")
    except InvalidInputError:
        return None  # somebody else's
