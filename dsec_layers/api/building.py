"""From a Layerfile to a tagged layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dsec_layers.api import contents
from dsec_layers.api.parents import Parents
from dsec_layers.api.publishing import check_name, publish
from dsec_layers.api.rows import LayerRow
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder import build as builder
from dsec_layers.builder.borrowing import copied_up
from dsec_layers.builder.events import Progress
from dsec_layers.builder.request import BuildRequest, BuildResult, Lent, lend_nothing, locate
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.linux import hostmirrors
from dsec_layers.linux.capabilities import Capability, require
from dsec_layers.model.content import Source
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Kind, Reference


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build. `layerfile` defaults to the one in the context; `kind` and `name` override it.

    `epoch_s` is SOURCE_DATE_EPOCH. `secrets` are contents by id, `contexts` further
    folders by name. `host_mirrors` lends RUN steps
    this machine's package settings.
    """

    layerfile: Path | None = None
    kind: str | None = None
    name: str | None = None
    target: str | None = None
    args: Mapping[str, str] = field(default_factory=dict)
    epoch_s: int | None = None
    no_cache: bool = False
    host_mirrors: bool = False
    workers: int | None = None
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    contexts: Mapping[str, Path] = field(default_factory=dict)


def build(
    bench: Workbench,
    path: Path,
    reference: Reference | None,
    options: BuildOptions = BuildOptions(),
    *,
    on_event: Progress = lambda _: None,
    on_bytes: Callable[[int], None] | None = None,
) -> LayerRow:
    """Build the Layerfile at `path` (a directory, or the file) and tag the layer `reference`.

    Without a reference the layer takes the name it declares and the tag `latest`. `on_event` is
    told of steps, `on_bytes` of the bytes packed. Raises InvalidInputError (`file:line`),
    NotFoundError, BuildError, NoSpaceError, CapabilityMissingError, CorruptError.
    """
    _check_agreement(reference, options)
    require(Capability.ROOT, Capability.OVERLAY, Capability.OCI)
    layerfile, context = (options.layerfile, path) if options.layerfile else locate(path)
    if not context.is_dir():
        raise NotFoundError(f"the context {context} is no directory")
    parents = Parents(bench)
    request = BuildRequest(
        layerfile=layerfile,
        context=context,
        home=bench.home.builder,
        args=options.args,
        kind=options.kind or (reference.kind.value if reference else None),
        name=options.name or (reference.name if reference else None),
        target=options.target,
        epoch=options.epoch_s,
        no_cache=options.no_cache,
        lend=_lend if options.host_mirrors else lend_nothing,
        secrets=options.secrets,
        contexts=_contexts(options.contexts),
    )
    with builder.build(request, parents, on_event) as result:
        target = reference or Reference(result.kind, result.name)
        return publish(
            bench,
            result.source,
            target,
            run=result.run,
            provenance=Provenance(
                source="build",
                layerfile_digest=result.layerfile_digest,
                inputs=dict(result.inputs),
                base=result.base_digest,
                source_date_epoch=result.epoch,
            ),
            known=_known(bench, parents, result),
            workers=options.workers,
            progress=on_bytes,
        )


def _contexts(given: Mapping[str, Path]) -> dict[str, Path]:
    """By name in lower case, as names of stages are compared."""
    for name, path in given.items():
        if not path.is_dir():
            raise NotFoundError(f"the build context {name}={path} is no directory")
    return {name.lower(): path for name, path in given.items()}


def _check_agreement(reference: Reference | None, options: BuildOptions) -> None:
    """A base holds a whole tree and the others a diff: one tagged as the other would be broken."""
    if reference is None:
        return
    check_name(reference)
    for what, given, tagged in (
        ("kind", options.kind, reference.kind.value),
        ("name", options.name, reference.name),
    ):
        if given not in (None, tagged):
            raise InvalidInputError(f"the {what} {given} is not that of {reference}")


def _known(bench: Workbench, parents: Parents, result: BuildResult) -> Sequence[KnownLayer]:
    """The layers below, whose chunks need not be stored again.

    A base holds all that lies below it, so its small files meet in the same groups again; those of
    the others are looked for one by one.
    """
    if not result.parent_digest:
        return ()
    layers = parents.stack(result.parent_digest).layers
    for layer in layers:
        for blob in (layer.descriptor, *layer.manifest.blobs):
            bench.local.has(blob)  # renews its lease, should its tag be removed while we pack
    if result.kind is Kind.BASE:
        return [KnownLayer(contents.table_of(layer), layer.manifest.packs) for layer in layers]
    return [_with_contents(bench, layer, result.source) for layer in layers]


def _with_contents(bench: Workbench, layer: MountLayer, source: Source) -> KnownLayer:
    table = contents.table_of(layer)
    with contents.opened(bench, [layer]) as (image,):
        held = copied_up(source, image, table, partial(contents.read_chunk, layer))
    return KnownLayer(table, layer.manifest.packs, held)


def _lend(rootfs: Path, folder: Path) -> Lent:
    """What `--host-mirrors` lends."""
    loan = hostmirrors.lend(rootfs, folder)
    return Lent(tuple(loan.binds), loan.env)
