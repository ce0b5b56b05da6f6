"""From a Layerfile to a tagged layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.api import dictionary
from dsec_layers.api.packedbefore import PackedBefore, key_of
from dsec_layers.api.parentimages import ParentImages
from dsec_layers.api.parents import Parents
from dsec_layers.api.publishing import check_name, tagged
from dsec_layers.api.rows import LayerRow
from dsec_layers.api.runtimes import remembered_runtime
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.builder import build as builder
from dsec_layers.builder import housekeeping
from dsec_layers.builder.events import Note, Progress
from dsec_layers.builder.layers import Image
from dsec_layers.builder.request import (
    BuildRequest,
    BuildResult,
    Lent,
    default_jobs,
    lend_nothing,
    locate,
)
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.linux.capabilities import Capability, require
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.registry import leases

if TYPE_CHECKING:
    from dsec_layers.api.stepstores import StoredSteps
    from dsec_layers.builder.stepstores import Tell
    from dsec_layers.chunks.memory import Before
    from dsec_layers.model.blobs import Store


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build. `layerfile` defaults to the one in the context; `kind` and `name` override it.

    `epoch_s` is SOURCE_DATE_EPOCH. `secrets` are contents by id, `contexts` further folders by
    name, `layers` what other names mean. With `pull` registries are asked anew for the images that
    it stands on. `host_mirrors` lends RUN steps this machine's package settings. `jobs` is how many
    steps are done at once, `workers` how many threads compress; None is as many as there are cores.

    Results of steps are looked for in the stores `cache_from` and put into those of `cache_to`
    (URLs). Here, those used last are kept, up to `cache_bytes`; None is a tenth of the disk. With
    `verify` all is built twice, and nothing is tagged when the layers differ. Chunks of
    `chunk_dicts` are referred to instead of stored again.
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
    layers: Mapping[str, Reference | Image] = field(default_factory=dict)
    pull: bool = False
    jobs: int | None = None
    cache_from: Sequence[str] = ()
    cache_to: Sequence[str] = ()
    cache_bytes: int | None = None
    verify: bool = False
    chunk_dicts: Sequence[Reference] = ()


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
    require(Capability.ROOT, Capability.OVERLAY)  # a RUN that is carried out wants a runtime too
    layerfile, context = (options.layerfile, path) if options.layerfile else locate(path)
    if not context.is_dir():
        raise NotFoundError(f"the context {context} is no directory")

    def tell(text: str) -> None:
        on_event(Note(text))

    stored, destinations = _step_stores(options, tell)
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
        jobs=options.jobs or default_jobs(),
        step_stores=stored,
        lend=_lend if options.host_mirrors else lend_nothing,
        runtime=partial(remembered_runtime, bench.home.run),
        secrets=options.secrets,
        contexts=_contexts(options.contexts),
        layers={name.lower(): layer for name, layer in options.layers.items()},
    )
    with leases.hold(bench.local, purpose="build") as held:
        images = ParentImages(bench, pull=options.pull, tell=tell)
        chunks = dictionary.load(bench, options.chunk_dicts, held)
        making = _Making(bench, held, reference, options.workers, on_bytes, images, chunks)
        with builder.build(request, making.parents, on_event, making.get_ready) as result:
            layer = making.made(result)
            if options.verify:
                _verify(making, request, layer, on_event)
            row = tagged(bench, held, layer, making.name_of(result))
            for store in destinations:
                _export(bench, options, result, stored, store, tell)
    housekeeping.limit(bench.home.builder, options.cache_bytes)
    return row


@dataclass(frozen=True, slots=True)
class _Making:
    """Makes layers of what was built; they are whole in the local store, without tags."""

    bench: Workbench
    held: leases.Held
    reference: Reference | None
    workers: int | None
    on_bytes: Callable[[int], None] | None
    images: ParentImages
    chunks: dictionary.Dictionary
    parents: Parents = field(init=False)
    before: dict[Reference, Before] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parents", Parents(self.bench, self.held, self.images))

    def name_of(self, result: BuildResult) -> Reference:
        return self.reference or Reference(result.kind, result.name)

    def get_ready(self) -> None:
        """Load what `made` will need when something has changed. Raises StoreError."""
        from dsec_layers.api import packing  # noqa: F401 (the machinery)

        if self.reference is not None:
            self.before[self.reference] = self._records.of(self.reference)

    def made(self, result: BuildResult) -> MountLayer:
        """The layer of a result, packed unless an earlier build packed the same."""
        records, name = self._records, self.name_of(result)
        key = key_of(result, name, self._provenance(result))
        layer = records.find(key)
        if layer is None:
            layer = self.packed(result, self.before.get(name) or records.of(name))
            records.remember(key, name, layer)
        return layer

    @property
    def _records(self) -> PackedBefore:
        return PackedBefore(self.bench.home.builder / "layers", self.bench.local, self.held)

    def packed(self, result: BuildResult, before: Before | None = None) -> MountLayer:
        """The layer of a result. Raises as `pack_layer`."""
        # When nothing has changed, nobody comes here.
        from dsec_layers.api.packing import pack_result

        return pack_result(
            self.bench,
            self.held,
            result,
            self.name_of(result),
            self._provenance(result),
            parents=self.parents,
            chunks=self.chunks,
            before=before,
            workers=self.workers,
            progress=self.on_bytes,
        )

    def _provenance(self, result: BuildResult) -> Provenance:
        return Provenance(
            source="build",
            layerfile_digest=result.layerfile_digest,
            inputs={**result.inputs, **self.chunks.inputs},
            base=result.base_digest,
            source_date_epoch=result.epoch,
        )


def _verify(making: _Making, request: BuildRequest, first: MountLayer, on_event: Progress) -> None:
    """Build once more, with nothing of before and other numbers of threads. Raises BuildError."""
    from dsec_layers.api import reproducing
    from dsec_layers.builder import apart

    images = msgspec.structs.replace(making.images, pull=False)  # those of the first build
    other = dataclasses.replace(making, workers=1 if making.workers != 1 else 2, images=images)
    on_event(Note("building once more, without the step cache"))
    with apart.apart(request.home) as home:
        again = dataclasses.replace(
            request, home=home, jobs=1 if request.jobs > 1 else 2, step_stores=()
        )
        with builder.build(again, other.parents, on_event) as result:
            second = other.packed(result)
            name = other.name_of(result)
    epoch = result.epoch is not None
    reproducing.check_same(making.bench, name, first, second, epoch=epoch)


def _step_stores(options: BuildOptions, tell: Tell) -> tuple[list[StoredSteps], list[Store]]:
    """The stores of `cache_from` and of `cache_to`."""
    if not options.cache_from and not options.cache_to:
        return [], []
    from dsec_layers.api import stepstores

    stored = stepstores.open_stored_steps(options.cache_from, tell)
    return stored, stepstores.open_destinations(options.cache_to, tell)


def _export(
    bench: Workbench,
    options: BuildOptions,
    result: BuildResult,
    stored: Sequence[StoredSteps],
    store: Store,
    tell: Tell,
) -> None:
    from dsec_layers.api import stepstores

    damaged = {key for each in stored for key in each.damaged}
    with work_folder(bench.home.root, "steps") as work:
        count = stepstores.export(
            result.steps,
            store,
            work,
            replace=lambda key: options.no_cache or key in damaged,
            workers=options.workers,
            tell=tell,
        )
    tell(f"{count} steps were put into {store.url}")


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
    for what, given, wanted in (
        ("kind", options.kind, reference.kind.value),
        ("name", options.name, reference.name),
    ):
        if given not in (None, wanted):
            raise InvalidInputError(f"the {what} {given} is not that of {reference}")


def _lend(rootfs: Path, folder: Path) -> Lent:
    """What `--host-mirrors` lends."""
    from dsec_layers.linux import hostmirrors

    loan = hostmirrors.lend(rootfs, folder)
    return Lent(tuple(loan.binds), loan.env)
