"""Looking at what is in the local store: names, layers, trees and files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.rows import LayerRow, layer_row, sum_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.manifest import OCI_INDEX, Descriptor, LayerConfig
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, Tree
from dsec_layers.registry.prune import Pruned, prune


class Listed(LayerRow, frozen=True, kw_only=True):
    """A tag. `complete` says whether all its data is in the local store, not only its metadata."""

    complete: bool


class Inspected(LayerRow, frozen=True, kw_only=True):
    """Everything about a layer or an environment but its files."""

    run: RunConfig
    blobs: tuple[Descriptor, ...]
    configs: tuple[LayerConfig, ...]


def list_references(bench: Workbench, kind: Kind | None = None) -> Iterator[Listed]:
    """The tags of the local store. Raises CorruptError, NotFoundError or StoreError."""
    for reference, descriptor in bench.local.tags(kind):
        row = _row(bench, reference, descriptor)
        packs = [
            pack
            for layer in _layers(bench, descriptor)
            for pack in bench.layer(layer).manifest.packs
        ]
        complete = all(bench.local.has(pack) for pack in packs)
        yield Listed(**msgspec.structs.asdict(row), complete=complete)


def inspect(bench: Workbench, reference: Reference) -> Inspected:
    """One layer or environment. Raises NotFoundError, CorruptError or StoreError."""
    descriptor = bench.resolve(reference)
    row = _row(bench, reference, descriptor)
    layers = tuple(bench.layer(layer) for layer in _layers(bench, descriptor))
    run = (
        bench.environment(descriptor).run
        if descriptor.media_type == OCI_INDEX
        else layers[0].config.run
    )
    blobs = {blob.digest: blob for layer in layers for blob in layer.manifest.blobs}
    return Inspected(
        **msgspec.structs.asdict(row),
        run=run,
        blobs=tuple(blobs.values()),
        configs=tuple(layer.config for layer in layers),
    )


def tree(bench: Workbench, reference: Reference) -> Tree:
    """What a mount of `reference` would show, read from metadata only; digests are not known.

    Raises NotFoundError, CorruptError or StoreError.
    """
    with contents.opened(bench, bench.stack(reference).layers) as images:
        return contents.composed_tree(images)


def cat(bench: Workbench, reference: Reference, path: str) -> Iterator[bytes]:
    """The bytes of one file, without a mount; symlinks are followed inside the tree.

    Raises NotFoundError, InvalidInputError (not a file), CorruptError or StoreError.
    """
    layers = bench.stack(reference).layers
    names = [name for name in path.encode("utf-8", "surrogateescape").split(b"/") if name]
    if b".." in names or b"." in names:
        raise InvalidInputError(f"{path!r} has . or .. in it", hint="give the path from the root")
    with contents.opened(bench, layers) as images:
        index, entry = contents.find(images, b"/".join(names))
        yield from contents.read_file(layers[index], images[index], entry)


def below(listed: Tree, path: str, depth: int | None) -> Iterator[Entry]:
    """The entries of a tree at and below `path`, at most `depth` names deep."""
    top = path.encode("utf-8", "surrogateescape").strip(b"/")
    for entry in listed:
        if top and entry.path != top and not entry.path.startswith(top + b"/"):
            continue
        rest = entry.path[len(top) :].strip(b"/")
        if depth is None or (rest.count(b"/") + 1 if rest else 0) <= depth:
            yield entry


def remove(bench: Workbench, reference: Reference, *, grace_s: float | None = None) -> Pruned:
    """Remove a tag, and with `grace_s` the blobs that no tag has reached for so long.

    What other tags still reach stays. Raises NotFoundError.
    """
    bench.local.untag(reference)
    return prune(bench.local, grace_s=grace_s) if grace_s is not None else Pruned(0, 0)


def _layers(bench: Workbench, descriptor: Descriptor) -> tuple[Descriptor, ...]:
    if descriptor.media_type == OCI_INDEX:
        return bench.environment(descriptor).layers
    return (descriptor,)


def _row(bench: Workbench, reference: Reference, descriptor: Descriptor) -> LayerRow:
    layers = tuple(bench.layer(layer) for layer in _layers(bench, descriptor))
    if descriptor.media_type == OCI_INDEX:
        return sum_row(str(reference), descriptor.digest, layers)
    return layer_row(layers[0], str(reference))
