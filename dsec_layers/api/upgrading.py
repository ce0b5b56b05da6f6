"""One layer of many environments replaced by another of its repository.

An environment is a short list of layers, so a new toolkit, base or workspace reaches a thousand of
them without one being built: each gets a new index and its tag moves. Manifests and configs are
read once for all. A tag moves only if it still names what was read; if somebody else moved it
meanwhile, that environment is a conflict and the others go on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from dsec_layers.api import choosing
from dsec_layers.api.checking import Checker, Report
from dsec_layers.api.trust import Trust
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import ConflictError, DsecError, InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.blobs import Store
from dsec_layers.model.environment import REFERENCE_KEY, Environment
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import merge
from dsec_layers.registry import layers as stored
from dsec_layers.registry import leases, tagging
from dsec_layers.registry.urls import open_store

# Putting an index and moving a tag wait for the disk, or for the other end of a line; the disk
# makes what many ask for at once durable in one go.
_AT_ONCE: Final = 64


class Status(StrEnum):
    """What became of an environment; `error` and `conflict` left it as it was."""

    UPGRADED = "upgraded"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"
    ERROR = "error"


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    """One environment. `target` is the tag that names `after`; digests are empty when not known.

    `reason` says why it is a conflict or an error. `errors` and `warnings` count what the check of
    the new composition found, if there was one.
    """

    environment: str
    target: str
    status: Status
    before: str = ""
    after: str = ""
    reason: str = ""
    errors: int | None = None
    warnings: int | None = None

    @property
    def failed(self) -> bool:
        """Whether it was to be upgraded and was not."""
        return self.status in (Status.CONFLICT, Status.ERROR)


@dataclass(frozen=True, slots=True)
class UpgradeOptions:
    """`to_tag` writes the tag of this name beside the old one instead of moving that.

    `check` checks each new composition, `strict` refuses those with errors, `dry_run` writes
    nothing. `url` names the store of the environments; by default it is the local one.
    """

    to_tag: str | None = None
    check: bool = False
    strict: bool = False
    dry_run: bool = False
    url: str | None = None


def upgrade(
    bench: Workbench,
    layer: Reference,
    environments: Sequence[str],
    options: UpgradeOptions = UpgradeOptions(),
    *,
    on_done: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Upgraded, ...]:
    """Put `layer` in the place of the layer of the same repository, in each of `environments`.

    These are references, and patterns over the tags of the store in which `*` stands for any
    characters, `/` and `:` too. Rows come in the order of the environments; a pattern passes over
    environments without a layer of the repository, which are errors when named. `on_done` is told
    how many are done, and of how many. Where the workbench asks for signatures, the layer and each
    environment have to be signed; what is made of them is not yet. Raises InvalidInputError,
    NotFoundError and SignatureError for the layer and the patterns, CorruptError or StoreError;
    what fails for one environment is in its row.
    """
    if layer.kind is Kind.ENV:
        raise InvalidInputError(f"{layer} is an environment", hint="name the new layer")
    store: Store = bench.local
    trust = bench.trust
    if options.url:
        store = open_store(options.url)
        found = store.resolve(bench.admitted(layer, store))
        bench = Workbench(bench.home.root, (options.url,))
    else:
        found = bench.trusted(layer)
    chosen = list(choosing.environments(store, environments))
    with Checker(bench) as checker:
        work = _Upgrade(bench, store, layer, found, options, checker, trust)
        planned = [one for each in chosen if (one := work.plan(*each)) is not None]
        if options.dry_run:
            return tuple(each.row for each in planned)
        rows: list[Upgraded] = []
        with (
            leases.hold(store, work.needs(planned), purpose="upgrade") as held,
            ThreadPoolExecutor(_AT_ONCE, "upgrade") as pool,
        ):
            carry_out = functools.partial(work.carry_out, held)
            for number, row in enumerate(pool.map(carry_out, planned), start=1):
                rows.append(row)
                on_done(number, len(planned))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A row as it will be, and what is to be written for it; None when nothing is."""

    row: Upgraded
    target: Reference
    environment: Environment | None = None
    expected: Descriptor | None = None


class _Upgrade:
    """What all environments of one call share."""

    def __init__(
        self,
        bench: Workbench,
        store: Store,
        reference: Reference,
        layer: Descriptor,
        options: UpgradeOptions,
        checker: Checker,
        trust: Trust | None,
    ) -> None:
        self._bench = bench
        self._store = store
        self._reference = reference
        self._layer = layer
        self._options = options
        self._checker = checker
        self._trust = trust
        self._load = functools.lru_cache(maxsize=None)(self._load_digest)
        self._reports: dict[tuple[str, ...], Report] = {}
        self._builder = tagging.this_builder()
        if self._load(layer.digest, layer.size).config.kind is not reference.kind:
            raise InvalidInputError(f"{reference} is not a {reference.kind.value}")

    def plan(
        self, reference: Reference, current: Descriptor | None, named: bool
    ) -> _Planned | None:
        """Make the new environment of one; None when a pattern passes over it."""
        target = reference
        if self._options.to_tag is not None:
            target = Reference(Kind.ENV, reference.name, self._options.to_tag)
        row = Upgraded(environment=str(reference), target=str(target), status=Status.ERROR)
        try:
            if not target.tag:
                raise InvalidInputError(f"{reference} has no tag to move: name one by --to-tag")
            current = current or self._store.resolve(reference)
            row = msgspec.structs.replace(row, before=current.digest)
            environment = self._upgraded(stored.load_environment(self._store, current))
            if environment is None:
                if not named:
                    return None
                raise InvalidInputError(f"it has no layer of {self._reference.repository}")
            if self._trust is not None:
                self._trust.check(self._store, reference, current)
            after = environment.descriptor()
            row = msgspec.structs.replace(row, after=after.digest)
            stands = current if target == reference else self._stands(target)
            if stands is not None and stands.digest == after.digest:
                return _Planned(msgspec.structs.replace(row, status=Status.UNCHANGED), target)
            if stands is not None and target != reference:
                raise ConflictError(f"{target} is there already, as {stands.digest}")
            row = self._checked(row, environment)
        except DsecError as error:
            status = Status.CONFLICT if isinstance(error, ConflictError) else Status.ERROR
            row = msgspec.structs.replace(row, status=status, reason=error.message)
            return _Planned(row, target)
        row = msgspec.structs.replace(row, status=Status.UPGRADED)
        return _Planned(row, target, environment, stands)

    def needs(self, planned: Sequence[_Planned]) -> tuple[Descriptor, ...]:
        """All that the new environments are made of, each once."""
        made = [each.environment for each in planned if each.environment is not None]
        layers = {layer.digest: layer.size for each in made for layer in each.layers}
        needed = {each.descriptor().digest: each.descriptor() for each in made}
        for layer in (self._load(digest, size) for digest, size in layers.items()):
            needed[layer.descriptor.digest] = layer.descriptor
            needed |= {blob.digest: blob for blob in layer.manifest.blobs}
        return tuple(needed.values())

    def carry_out(self, held: leases.Held, planned: _Planned) -> Upgraded:
        """Write one environment: the index first, so that the tag never names what is not there."""
        if planned.environment is None:
            return planned.row
        after = planned.environment.descriptor()
        try:
            self._store.put(after, planned.environment.encode())
            held.check()
            tagging.set_tag(
                *(self._store, planned.target, after),
                expected=planned.expected,
                builder=self._builder,
            )
        except ConflictError as error:
            return msgspec.structs.replace(
                planned.row, status=Status.CONFLICT, reason=error.message
            )
        except DsecError as error:
            return msgspec.structs.replace(planned.row, status=Status.ERROR, reason=error.message)
        return planned.row

    def _upgraded(self, environment: Environment) -> Environment | None:
        """The environment with the new layer, or None when it has no layer to be replaced."""
        repository = self._reference.repository
        layers = [self._load(layer.digest, layer.size) for layer in environment.layers]
        names = [layer.annotations.get(REFERENCE_KEY, "") for layer in environment.layers]
        places = [
            number
            for number, (layer, name) in enumerate(zip(layers, names, strict=True))
            if _repository(layer, name) == repository
        ]
        if not places:
            return None
        if len(places) > 1:
            raise InvalidInputError(f"it has {len(places)} layers of {repository}")
        if layers[places[0]].descriptor.digest == self._layer.digest:
            return environment
        layers[places[0]] = self._load(self._layer.digest, self._layer.size)
        names[places[0]] = str(self._reference)
        triples = [
            (layer.config.kind, name, layer.descriptor.carrying(layer.manifest.encode()))
            for layer, name in zip(layers, names, strict=True)
        ]
        return Environment.of(triples, merge(layer.config.run for layer in layers))

    def _checked(self, row: Upgraded, environment: Environment) -> Upgraded:
        if not (self._options.check or self._options.strict):
            return row
        key = tuple(layer.digest for layer in environment.layers)
        if key not in self._reports:
            layers = [
                (str(layer.annotations[REFERENCE_KEY]), self._load(layer.digest, layer.size))
                for layer in environment.layers
            ]
            self._reports[key] = self._checker.check(layers)
        report = self._reports[key]
        if self._options.strict and report.errors:
            worst = report.findings[0]
            where = f"{worst.layer}: {worst.path}" if worst.path else worst.layer
            raise InvalidInputError(
                f"the check has {report.errors} errors: {where} {worst.message}"
            )
        return msgspec.structs.replace(row, errors=report.errors, warnings=report.warnings)

    def _stands(self, target: Reference) -> Descriptor | None:
        try:
            return self._store.resolve(target)
        except NotFoundError:
            return None

    def _load_digest(self, digest: str, size: int) -> MountLayer:
        """A layer by its digest: an environment's descriptor has annotations, another has not."""
        plain = msgspec.structs.replace(self._layer, digest=digest, size=size, annotations={})
        if not self._options.url:
            return self._bench.layer(plain)
        layer = stored.load_layer(self._store, plain)
        return MountLayer(plain, layer.manifest, layer.config, self._store, (self._store.url,))


def _repository(layer: MountLayer, name: str) -> str:
    """The repository that a layer was composed from, or that it was packed for."""
    if name:
        return Reference.parse(name).repository
    return f"{layer.config.kind.value}/{layer.config.name}"
