"""What a build asks of the layers it stands on. The public API passes an implementation in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig


@dataclass(frozen=True, slots=True)
class ParentLayer:
    """A resolved layer.

    `run` is what it asks for itself, `effective_run` the same merged over the layers it stands on.
    `base` is the digest of the layer it was built on, empty for a base.
    """

    reference: Reference
    digest: Digest
    kind: Kind
    run: RunConfig
    effective_run: RunConfig
    base: str = ""


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

    def open(self, layer: ParentLayer) -> AbstractContextManager[OpenLayer]:
        """Mount a layer until the context ends."""
        ...
