"""Looking at what is in the local store: names, layers, trees and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.rows import LayerRow, layer_row, sum_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.lazyfs.journal import Journal
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.manifest import OCI_INDEX, Descriptor, LayerConfig
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, Tree
from dsec_layers.registry.prune import Pruned, prune


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A tag and what it names, or the `problem` that keeps it from being read.

    `complete` says whether all its data is in the local store, not only its metadata.
    """

    reference: str
    digest: str
    complete: bool = False
    layer: LayerRow | None = None
    problem: str | None = None


class Inspected(LayerRow, frozen=True, kw_only=True):
    """Everything about a layer or an environment but its files."""

    run: RunConfig
    blobs: tuple[Descriptor, ...]
    configs: tuple[LayerConfig, ...]


def list_references(bench: Workbench, kind: Kind | None = None) -> Iterator[Listed]:
    """The tags of the local store. Raises CorruptError or StoreError for a broken tag itself."""
    for reference, descriptor in bench.local.tags(kind):
        try:
            yield _listed(bench, reference, descriptor)
        except DsecError as error:  # one damaged layer must not hide all others
            yield Listed(reference=str(reference), digest=descriptor.digest, problem=error.message)


def inspect(bench: Workbench, reference: Reference) -> Inspected:
    """One layer or environment. Raises NotFoundError, CorruptError or StoreError."""
    descriptor = bench.resolve(reference)
    layers = _layers(bench, descriptor)
    is_layer = descriptor.media_type != OCI_INDEX
    blobs = {blob.digest: blob for layer in layers for blob in layer.manifest.blobs}
    return Inspected(
        **msgspec.structs.asdict(_row(reference, descriptor, layers)),
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


def remove(bench: Workbench, references: Sequence[Reference]) -> None:
    """Remove tags; layers stay. Raises NotFoundError or InvalidInputError before any is removed."""
    for reference in references:
        if not reference.tag:
            raise InvalidInputError(f"{reference} has no tag", hint="only tags are removed")
        bench.local.resolve(reference)
    for reference in references:
        bench.local.untag(reference)


def prune_store(bench: Workbench, grace_s: float) -> Pruned:
    """Remove the blobs that neither a tag nor a mount has needed for `grace_s`.

    Raises CorruptError, NotFoundError or StoreError.
    """
    records = Journal(bench.home.run).records()
    mounted = {f"sha256:{layer.hex}" for record in records for layer in record.layers}
    return prune(bench.local, grace_s=grace_s, mounted=mounted)


def _listed(bench: Workbench, reference: Reference, descriptor: Descriptor) -> Listed:
    layers = _layers(bench, descriptor)
    return Listed(
        reference=str(reference),
        digest=descriptor.digest,
        complete=all(bench.local.has(pack) for layer in layers for pack in layer.manifest.packs),
        layer=_row(reference, descriptor, layers),
    )


def _layers(bench: Workbench, descriptor: Descriptor) -> tuple[MountLayer, ...]:
    if descriptor.media_type == OCI_INDEX:
        return tuple(bench.layer(layer) for layer in bench.environment(descriptor).layers)
    return (bench.layer(descriptor),)


def _row(reference: Reference, descriptor: Descriptor, layers: tuple[MountLayer, ...]) -> LayerRow:
    if descriptor.media_type == OCI_INDEX:
        return sum_row(str(reference), descriptor.digest, layers)
    return layer_row(layers[0], str(reference))


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
