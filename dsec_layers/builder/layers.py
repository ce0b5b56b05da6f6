"""What a build asks of the layers it stands on. The public API passes an implementation in."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig


class ParentLayer(msgspec.Struct, frozen=True):
    """A resolved layer.

    `run` is what it asks for itself, `effective_run` the same merged over the layers it stands on.
    `base` is the digest of the layer it was built on, empty for a base. One that was made of an
    image tells that (`name@sha256:...`), and the instructions that the image leaves to builds on
    it.
    """

    reference: Reference
    digest: Digest
    kind: Kind
    run: RunConfig
    effective_run: RunConfig
    base: str = ""
    image: str = ""
    triggers: tuple[str, ...] = ()


class ImageForm(StrEnum):
    """In what form an image is on this machine."""

    LAYOUT = "oci-layout"
    DOCKER_ARCHIVE = "docker-archive"


class ImageFile(msgspec.Struct, frozen=True):
    """An image on this machine; `name` is which of several, or empty."""

    form: ImageForm
    path: Path
    name: str = ""


Image = ImageName | ImageFile


def parse_parent(text: str) -> Reference | ImageName:
    """What a FROM or `from` names that is no stage: a layer, or else an image.

    Raises InvalidInputError.
    """
    if text.isdecimal():  # Docker, too, takes it for a stage
        raise InvalidInputError(f"{text!r} is neither a stage above nor a layer nor an image")
    with contextlib.suppress(InvalidInputError):
        return Reference.parse(text)
    try:
        return ImageName.parse(text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{text!r} is neither a stage above nor a layer nor an image", hint=error.hint
        ) from error


def no_image(image: Image) -> ParentLayer:
    """Where builds know no images."""
    raise InvalidInputError(
        f"{str(image)!r} is neither a stage above nor a layer",
        hint="an image is imported first (`dsec-layers import`), then it is base/NAME",
    )


class OpenLayer(Protocol):
    """A layer that is mounted, with all it stands on."""

    @property
    def lowers(self) -> Sequence[Path]:
        """The directories to stack, topmost first."""
        ...

    def source(self) -> Source:
        """What the layer holds itself, without those below. Contents live while it is open."""
        ...


class LayerProvider(Protocol):
    """Finds and mounts layers."""

    def resolve(self, reference: Reference) -> ParentLayer:
        """Pin a reference. Raises NotFoundError."""
        ...

    def image(self, image: Image) -> ParentLayer:
        """The base made of an image. Raises NotFoundError, StoreError, InvalidInputError."""
        ...

    def open(self, layer: ParentLayer) -> AbstractContextManager[OpenLayer]:
        """Mount a layer until the context ends."""
        ...
