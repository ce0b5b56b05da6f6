"""From a Layerfile to a tagged layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.api import dictionary
from dsec_layers.api.buildrequests import BuildOptions, request_of
from dsec_layers.api.packedbefore import PackedBefore, key_of
from dsec_layers.api.parentimages import ParentImages
from dsec_layers.api.parents import Parents
from dsec_layers.api.publishing import tagged
from dsec_layers.api.rows import LayerRow
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.builder import build as builder
from dsec_layers.builder import housekeeping
from dsec_layers.builder.events import Note, Progress
from dsec_layers.builder.request import BuildRequest, BuildResult
from dsec_layers.errors import SignatureError
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


def build(
    bench: Workbench,
    path: Path,
    reference: Reference | None,
    options: BuildOptions = BuildOptions(),  # noqa: B008 (frozen)
    *,
    on_event: Progress = lambda _: None,
    on_bytes: Callable[[int], None] | None = None,
) -> LayerRow:
    """Build the Layerfile at `path` (a directory, or the file) and tag the layer `reference`.

    Without a reference the layer takes the name it declares and the tag `latest`. `on_event` is
    told of steps, `on_bytes` of the bytes packed. Raises InvalidInputError (`file:line`),
    NotFoundError, BuildError, NoSpaceError, CapabilityMissingError, CorruptError.
    """
    request = request_of(bench, path, reference, options)
    require(Capability.ROOT, Capability.OVERLAY)  # a RUN that is carried out wants a runtime too

    def tell(text: str) -> None:
        on_event(Note(text))

    stored, destinations = _step_stores(bench, options, tell)
    request = dataclasses.replace(request, step_stores=stored)
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


def _step_stores(
    bench: Workbench, options: BuildOptions, tell: Tell
) -> tuple[list[StoredSteps], list[Store]]:
    """The stores of `cache_from` and of `cache_to`."""
    if not options.cache_from and not options.cache_to:
        return [], []
    if options.cache_from and bench.trust is not None:
        raise SignatureError(
            "signatures are asked for, and results of steps in a store have none",
            hint="build without --cache-from, or without --require-signature",
        )
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
