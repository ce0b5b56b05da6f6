"""What `--build-context NAME=VALUE` means: a folder, an image, or a layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.layers import Image, ImageFile, ImageForm
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Reference

_IMAGE: Final = "docker-image://"
_LAYER: Final = "layer:"
_HINT: Final = (
    "write NAME=FOLDER, NAME=docker-image://IMAGE, NAME=oci-layout:///FOLDER[:TAG], "
    "NAME=docker-archive:///FILE[:NAME:TAG] or NAME=layer:KIND/NAME:TAG"
)


class Contexts(msgspec.Struct, frozen=True):
    """Folders, and layers and images, by name."""

    folders: dict[str, Path] = {}
    layers: dict[str, Reference | Image] = {}


def parse_contexts(given: Sequence[str]) -> Contexts:
    """Parse what was given; of a name that was given twice the later counts.

    Raises InvalidInputError, or NotFoundError for a layout or archive that is not there.
    """
    found = Contexts()
    for each in given:
        name, _, value = each.partition("=")
        if not name or not value:
            raise InvalidInputError(f"{each!r} is no build context", hint=_HINT)
        found.folders.pop(name, None)
        found.layers.pop(name, None)
        parent = _parent(value)
        if parent is not None:
            found.layers[name] = parent
        elif "://" in value:
            raise InvalidInputError(f"{each!r} is no build context", hint=_HINT)
        else:
            found.folders[name] = Path(value)
    return found


def _parent(value: str) -> Reference | Image | None:
    """What is no folder."""
    if value.startswith(_IMAGE):
        return ImageName.parse(value.removeprefix(_IMAGE))
    if value.startswith(_LAYER):
        return Reference.parse(value.removeprefix(_LAYER))
    form, mark, rest = value.partition("://")
    if mark and form in list(ImageForm):
        return _file(ImageForm(form), rest)
    return None


def _file(form: ImageForm, text: str) -> ImageFile:
    """`PATH[:NAME]`; a path that exists as it stands has no name behind it."""
    path, name = Path(text), ""
    if not path.exists() and ":" in text:
        before, _, name = text.partition(":")
        path = Path(before)
    if not path.exists():
        raise NotFoundError(f"there is no {form} {path}", hint=_HINT)
    return ImageFile(form, path.absolute(), name)
