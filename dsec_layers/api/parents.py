"""The layers that a build stands on, from the stores of a workbench."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.api.images import image_of, triggers_of
from dsec_layers.api.parentimages import ParentImages
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.builder.layers import Image, OpenLayer, ParentLayer
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.tree import EntryKind, Tree
from dsec_layers.registry.leases import Held

if TYPE_CHECKING:
    from dsec_layers.lazyfs.metadata import MetadataImages


class MountedLayer(msgspec.Struct, frozen=True):
    """Implements `OpenLayer` by EROFS mounts. `folders` and the stack's layers are lowest first."""

    stack: Stack
    folders: Sequence[Path]
    images: MetadataImages

    @property
    def lowers(self) -> Sequence[Path]:
        """See OpenLayer."""
        return tuple(reversed(self.folders))

    def source(self) -> Source:
        """See OpenLayer. The tree is read from the metadata, where nothing is escaped."""
        return layer_source(self.images, self.stack.layers[-1].digest, self.folders[-1])


def layer_source(images: MetadataImages, digest: Digest, folder: Path) -> Source:
    """What a layer alone holds, its contents on its mount `folder`. Raises CorruptError."""
    place = os.fsencode(folder)
    with images.open(digest) as image:
        tree = Tree.of(image.walk())
    contents = {
        entry.path: LocalFile(place + b"/" + entry.path)
        for entry in tree
        if entry.kind is EntryKind.FILE
    }
    return Source(tree, contents)


class Parents:
    """Implements `LayerProvider`."""

    def __init__(self, bench: Workbench, held: Held, images: ParentImages | None = None) -> None:
        """`held`, a lease on the local store, takes in all that is resolved."""
        self._bench = bench
        self._held = held
        self._images = images or ParentImages(bench)
        self._stacks: dict[str, Stack] = {}

    def resolve(self, reference: Reference) -> ParentLayer:
        """See LayerProvider. An environment is refused: InvalidInputError."""
        if reference.kind is Kind.ENV:
            raise InvalidInputError(
                f"{reference} is an environment", hint="build on a base, workspace or toolkit"
            )
        stack = self._bench.held_stack(reference, self._held)
        top = stack.layers[-1]
        self._stacks[top.descriptor.digest] = stack
        return ParentLayer(
            reference=reference,
            digest=top.digest,
            kind=top.config.kind,
            run=top.config.run,
            effective_run=stack.run,
            base=top.config.provenance.base,
            image=image_of(top.config.provenance),
            triggers=triggers_of(top.config.provenance),
        )

    def image(self, image: Image) -> ParentLayer:
        """See LayerProvider."""
        return self.resolve(self._images.base(image))

    def stack(self, digest: str) -> Stack:
        """What `resolve` found for this layer."""
        return self._stacks[digest]

    @contextlib.contextmanager
    def open(self, layer: ParentLayer) -> Iterator[OpenLayer]:
        """See LayerProvider."""
        # A build from the cache mounts nothing.
        from dsec_layers.api.managing import manager
        from dsec_layers.lazyfs.metadata import MetadataImages

        stack = self._stacks[str(layer.digest)]
        self._bench.check_packs(stack.layers)
        with manager(self._bench).layer_dirs(stack.layers) as folders:
            yield MountedLayer(stack, folders, MetadataImages(self._bench.home.root))
