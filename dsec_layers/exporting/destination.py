"""Where an image goes: a layout directory, an archive or a registry, by what the user wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.imagename import ImageName

_HINT: Final = (
    "write a path, or oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME], "
    "docker://REGISTRY/NAME[:TAG]"
)
_REGISTRY: Final = "docker://"
_TAG: Final = re.compile(r"[A-Za-z0-9](?:[-._:@/+A-Za-z0-9]*[A-Za-z0-9])?")


class Format(StrEnum):
    """The form of an image, on disk or in a registry."""

    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    REGISTRY = "docker"


@dataclass(frozen=True, slots=True)
class Destination:
    """`name` is the image's name at `path`, when one was given; `image` that in a registry."""

    format: Format
    path: Path = Path()
    name: str | None = None
    image: ImageName | None = None

    @property
    def place(self) -> str:
        """Where it is, without the name there."""
        return self.image.repository if self.image else str(self.path)

    @classmethod
    def parse(cls, text: str, format_: Format | None = None) -> Destination:
        """Parse `FORMAT:PATH[:NAME]`, or a path, which is an oci-archive when it ends in .tar.

        Behind a format a path cannot have a colon, as with other tools. Raises InvalidInputError.
        """
        if text.startswith(_REGISTRY):
            return cls(Format.REGISTRY, image=_image(text.removeprefix(_REGISTRY), text, format_))
        prefix, colon, rest = text.partition(":")
        if colon and prefix in list(Format) and prefix != Format.REGISTRY:
            path, _, name = rest.partition(":")
            if format_ not in (None, Format(prefix)):
                raise InvalidInputError(f"{text} is not of the format {format_}", hint=_HINT)
            return cls(Format(prefix), _path(path, text), _checked(name) if name else None)
        by_name = Format.OCI_ARCHIVE if text.endswith(".tar") else Format.OCI
        return cls(format_ or by_name, _path(text, text))


def _image(name: str, text: str, format_: Format | None) -> ImageName:
    image = ImageName.parse(name)
    if format_ is not None or image.digest:
        what = f"not of the format {format_}" if format_ else "a digest, which follows from it"
        raise InvalidInputError(f"{text} is {what}", hint=_HINT)
    return image


def _path(path: str, text: str) -> Path:
    if not path or "\0" in path:
        raise InvalidInputError(f"no path in {text!r}", hint=_HINT)
    return Path(path)


def _checked(name: str) -> str:
    if not _TAG.fullmatch(name):
        raise InvalidInputError(f"{name!r} cannot name an image", hint=_HINT)
    return name
