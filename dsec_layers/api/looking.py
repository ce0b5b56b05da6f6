"""Looking at layers, trees and files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.rows import LayerRow, any_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.manifest import OCI_INDEX, Descriptor, LayerConfig
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, Tree


class Inspected(LayerRow, frozen=True, kw_only=True):
    """Everything about a layer or an environment but its files."""

    run: RunConfig
    blobs: tuple[Descriptor, ...]
    configs: tuple[LayerConfig, ...]


def inspect(bench: Workbench, reference: Reference) -> Inspected:
    """One layer or environment. Raises NotFoundError, CorruptError or StoreError."""
    descriptor = bench.resolve(reference)
    layers = _layers(bench, descriptor)
    is_layer = descriptor.media_type != OCI_INDEX
    blobs = {blob.digest: blob for layer in layers for blob in layer.manifest.blobs}
    return Inspected(
        **msgspec.structs.asdict(any_row(str(reference), descriptor, layers)),
        run=layers[0].config.run if is_layer else bench.environment(descriptor).run,
        blobs=tuple(blobs.values()),
        configs=tuple(layer.config for layer in layers),
    )


def tree(bench: Workbench, reference: Reference) -> Tree:
    """What a mount of `reference` would show, read from metadata only; digests are not known.

    Raises NotFoundError, CorruptError or StoreError.
    """
    with contents.opened(bench, bench.stack(reference).layers) as images:
        return contents.composed_tree(images)


def files(
    bench: Workbench, reference: Reference, path: str = "/", depth: int | None = None
) -> list[Entry]:
    """The entries of that tree at and below `path`, at most `depth` names below it.

    Symlinks in `path` are followed. Raises NotFoundError, CorruptError or StoreError.
    """
    with contents.opened(bench, bench.stack(reference).layers) as images:
        top = contents.find(images, _raw(path))[1].path
        entries = contents.composed_tree(images)
    prefix = top + b"/" if top else b""
    below = [entry for entry in entries if entry.path != top and entry.path.startswith(prefix)]
    deepest = len(entries) if depth is None else depth
    return [
        *(entry for entry in entries if entry.path == top),
        *(entry for entry in below if entry.path.count(b"/", len(prefix)) < deepest),
    ]


def cat(bench: Workbench, reference: Reference, path: str) -> Iterator[bytes]:
    """The bytes of one file, without a mount; symlinks are followed inside the tree.

    Raises NotFoundError, InvalidInputError (not a file), CorruptError or StoreError.
    """
    layers = bench.stack(reference).layers
    with contents.opened(bench, layers) as images:
        index, entry = contents.find(images, _raw(path))
        yield from contents.read_file(layers[index], images[index], entry)


def _layers(bench: Workbench, descriptor: Descriptor) -> tuple[MountLayer, ...]:
    if descriptor.media_type == OCI_INDEX:
        return tuple(bench.layer(layer) for layer in bench.environment(descriptor).layers)
    return (bench.layer(descriptor),)


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
