"""The changes of a sandbox as a layer, in time proportional to them.

Only the upper directory is walked. It may be in use: all that goes into the layer is looked at
before and after it is read, and the layer is tagged only if none of it changed, so that it is what
the sandbox was at one moment.

A workspace takes the place of the one below: it holds both that and the changes, so that the base,
it, and the toolkits show what the sandbox showed. A toolkit holds the changes alone, and goes above
all others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.api import contents, dictionary, sandboxes
from dsec_layers.api.committed import Committed, rows
from dsec_layers.api.gitrepositories import Repositories
from dsec_layers.api.knownlayers import known_layer
from dsec_layers.api.managing import manager
from dsec_layers.api.parents import layer_source
from dsec_layers.api.publishing import check_name, packed, tagged
from dsec_layers.api.sandboxes import Sandbox
from dsec_layers.api.shadowing import Shadowed, shadowed
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.builder.folding import one_diff, without_idle_whiteouts
from dsec_layers.builder.gitscrub import ScrubOptions
from dsec_layers.builder.residue import attest, sweep
from dsec_layers.builder.residuerules import RuleSet
from dsec_layers.errors import BusyError, CorruptError, InvalidInputError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.linux import overlays
from dsec_layers.linux.capabilities import Capability, require
from dsec_layers.model.content import Source
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.residue import GitScrubbed
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import EntryKind, Tree
from dsec_layers.registry import leases
from dsec_layers.sources import snapshot
from dsec_layers.sources.upper import walk_upper

_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """`base` names what an upper lies on that is not mounted. `rules` say what is left out.

    `layers` are digests, lowest first, of what an upper lies on that its owner has mounted by
    himself, and holds still for as long as this takes; then the path is the upper.
    `scrub` cleans git repositories. `dry_run` only tells what would be left out. Chunks of
    `chunk_dicts` are referred to instead of stored again.
    """

    base: Reference | None = None
    layers: Sequence[str] = ()
    rules: RuleSet = field(default_factory=RuleSet)
    scrub: ScrubOptions | None = None
    dry_run: bool = False
    workers: int | None = None
    chunk_dicts: Sequence[Reference] = ()


def commit(
    bench: Workbench,
    path: Path,
    reference: Reference,
    options: CommitOptions = CommitOptions(),
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> Committed:
    """Make the workspace or toolkit `reference` of the sandbox at `path`, and tag it.

    `path` is its mount point or its upper directory. `on_bytes` is told of the bytes packed. Raises
    BusyError when the sandbox changes all the time; InvalidInputError, NotFoundError, CorruptError,
    NoSpaceError, CapabilityMissingError, StoreError.
    """
    _check_kind(reference)
    check_name(reference)
    require(Capability.ROOT, Capability.OVERLAY)
    if options.layers:
        sandbox = sandboxes.lent(bench, path, options.layers)
    else:
        sandbox = sandboxes.find(bench, path, options.base)
    bench.check_packs(sandbox.layers)
    work = _Commit(bench, sandbox, reference, options, on_bytes)
    for _ in range(_ATTEMPTS):
        try:
            return work.once()
        except _MovedError as moved:
            paths = moved.paths
        time.sleep(_PAUSE_S)
    first = os.fsdecode(paths[0])
    raise BusyError(
        f"the sandbox changes while it is read: /{first}"
        + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""),
        hint="stop or pause what writes there, or leave the path out with --drop",
    )


def _check_kind(reference: Reference) -> None:
    if reference.kind in (Kind.WORKSPACE, Kind.TOOLKIT):
        return
    if reference.kind is Kind.BASE:
        hint = "commit a workspace; a Layerfile with LAYER base and FROM it makes a base of it"
    else:
        hint = "commit a workspace, then compose the environment with it"
    raise InvalidInputError(f"changes are no {reference.kind.value}", hint=hint)


class _MovedError(Exception):
    """These paths changed while they were read."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        super().__init__(paths)
        self.paths = paths


@dataclass(frozen=True, slots=True)
class _Commit:
    bench: Workbench
    sandbox: Sandbox
    reference: Reference
    options: CommitOptions
    on_bytes: Callable[[int], None] | None

    def once(self) -> Committed:
        """One attempt. Raises _MovedError."""
        blobs = [
            blob
            for layer in self.sandbox.layers
            for blob in (layer.descriptor, *layer.manifest.blobs)
        ]
        with (
            leases.hold(self.bench.local, blobs, purpose="commit") as held,
            work_folder(self.bench.home.root, "commit") as folder,
            manager(self.bench).layer_dirs(self.sandbox.layers) as lowers,
            sandboxes.shown(self.bench, self.sandbox, lowers, folder) as view,
        ):
            return self._made(held, Repositories(view, folder, lowers), lowers)

    def _made(
        self, held: leases.Held, repositories: Repositories, lowers: Sequence[Path]
    ) -> Committed:
        upper = self.sandbox.upper
        if self.sandbox.target is not None or self.sandbox.lent:
            overlays.sync(upper)
        before = snapshot.take(os.fsencode(upper))
        try:
            draft = self._draft(repositories, lowers)
            if moved := snapshot.unsettled(before, draft.watched):
                raise _MovedError(moved)
            if self.options.dry_run:
                return draft.told
            layer = self._packed(held, draft)
        except (CorruptError, BusyError, OSError) as error:
            after = snapshot.take(os.fsencode(upper))
            if moved := snapshot.changed(before, after, before.marks.keys() | after.marks.keys()):
                raise _MovedError(moved) from error
            raise
        if moved := snapshot.changed(before, snapshot.take(os.fsencode(upper)), draft.watched):
            raise _MovedError(moved)
        row = tagged(self.bench, held, layer, self.reference)
        return msgspec.structs.replace(draft.told, layer=row)

    def _draft(self, repositories: Repositories, lowers: Sequence[Path]) -> _Draft:
        """The layer before it is packed."""
        diff, rules = walk_upper(self.sandbox.upper), self.options.rules
        garbage = repositories.garbage(diff.tree) if rules.git_unreachable else frozenset[bytes]()
        swept = sweep(diff, rules, garbage)
        source, below = self._over_its_like(swept.source, lowers)
        git: tuple[GitScrubbed, ...] = ()
        if self.options.scrub is not None:
            source, git = repositories.scrubbed(source, self.options.scrub)
        source = without_idle_whiteouts(source, list(reversed(below)))
        told = Committed(
            reference=str(self.reference),
            base=self.sandbox.base.descriptor.digest,
            changes=len(swept.source.tree) - 1,
            residue=attest(rules, swept.dropped, git),
            dropped=rows(swept.dropped),
            shadowed=self._shadowed(swept.source.tree),
        )
        return _Draft(source, swept.source, tuple(_watched(swept.source.tree)), told)

    def _over_its_like(self, diff: Source, lowers: Sequence[Path]) -> tuple[Source, Sequence[Path]]:
        """What the layer holds, and the folders that lie below it, lowest first.

        A workspace takes in the one that it replaces.
        """
        if self.reference.kind is not Kind.WORKSPACE:
            return diff, lowers
        replaced = self.sandbox.of_kind(Kind.WORKSPACE)
        if not replaced:
            return diff, lowers[:1]
        at = self.sandbox.layers.index(replaced[0])
        images = MetadataImages(self.bench.home.root)
        return one_diff([layer_source(images, replaced[0].digest, lowers[at]), diff]), lowers[:1]

    def _packed(self, held: leases.Held, draft: _Draft) -> MountLayer:
        replaced = self.sandbox.of_kind(self.reference.kind)
        is_workspace = self.reference.kind is Kind.WORKSPACE
        chunks = dictionary.load(self.bench, self.options.chunk_dicts, held)
        below = {f"layer:{_name(each)}": str(each.digest) for each in self.sandbox.layers}
        known = [known_layer(self.bench, each, draft.diff) for each in self.sandbox.layers]
        return packed(
            self.bench,
            held,
            draft.source,
            self.reference,
            run=replaced[0].config.run if is_workspace and replaced else RunConfig(),
            provenance=Provenance(
                source="commit",
                inputs={**below, **chunks.inputs},
                base=draft.told.base,
                residue=draft.told.residue,
            ),
            known=[*known, *chunks.known(self.bench, draft.diff)],
            workers=self.options.workers,
            progress=self.on_bytes,
        )

    def _shadowed(self, diff: Tree) -> tuple[Shadowed, ...]:
        """Changes to what the toolkits hold, which stay above a workspace."""
        toolkits = self.sandbox.of_kind(Kind.TOOLKIT)
        if self.reference.kind is not Kind.WORKSPACE or not toolkits:
            return ()
        with contents.opened(self.bench, toolkits) as images:
            return shadowed(diff, list(zip(map(_name, toolkits), images, strict=True)))


@dataclass(frozen=True, slots=True)
class _Draft:
    """`source` is what the layer holds, `diff` what the sandbox changed, without residue.

    `watched` are the paths that must stay as they are.
    """

    source: Source
    diff: Source
    watched: tuple[bytes, ...]
    told: Committed


def _name(layer: MountLayer) -> str:
    return f"{layer.config.kind.value}/{layer.config.name}"


def _watched(diff: Tree) -> Iterator[bytes]:
    """What goes into the layer, and the directories on the way to it.

    A directory that only holds directories may change: what was made in it after the first look is
    not part of the layer.
    """
    on_the_way: set[bytes] = set()
    for entry in reversed(diff.entries):
        if entry.kind is not EntryKind.DIRECTORY or entry.path in on_the_way:
            on_the_way.add(entry.parent)
            yield entry.path
