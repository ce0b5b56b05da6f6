"""What may be wrong with a composition, before anything is mounted.

The rules are in `checks`. Without `deep` metadata is all that is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from dsec_layers.api.checks import (
    hidden,
    interpreters,
    libc,
    libraries,
    links,
    outdated,
    overwritten,
    owners,
    pythons,
    strangers,
    symbols,
    types,
)
from dsec_layers.api.checks.deep import DeepCase
from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Part
from dsec_layers.api.filedata import FileData, Place
from dsec_layers.api.opened import OpenedLayer, opened, raw
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import merge
from dsec_layers.model.tree import Entry

_RULES: Final[tuple[Callable[[Case], Iterator[Finding]], ...]] = (
    *(strangers.check, types.check, outdated.check),
    *(overwritten.check, hidden.check, links.check, libc.check, pythons.check),
)
_DEEP_RULES: Final[tuple[Callable[[DeepCase], Iterator[Finding]], ...]] = (
    *(interpreters.check, libraries.check, symbols.check, owners.check),
)
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_DEPTH: Final = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, worst first, then in the order of paths; and how many there are of each."""

    layers: tuple[str, ...]
    deep: bool
    errors: int
    warnings: int
    infos: int
    findings: tuple[Finding, ...]


def check_layers(
    bench: Workbench, layers: Sequence[tuple[str, MountLayer]], *, deep: bool = False
) -> Report:
    """Check the composition of named layers, lowest first, a base and then others.

    With `deep` the programs of the layers above the base are read as far as needed, passwd and
    group, and files that chunks do not compare. Raises CorruptError, NotFoundError or StoreError.
    """
    with Checker(bench, deep=deep) as checker:
        return checker.check(layers)


class Checker:
    """Checks one composition after the other; a context manager.

    Bases and toolkits stay open for the next one, since many compositions share them.
    """

    def __init__(self, bench: Workbench, *, deep: bool = False) -> None:
        self._bench = bench
        self._deep = deep
        self._shelf = _Shelf(bench, deep)

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._shelf.close()

    def check(self, layers: Sequence[tuple[str, MountLayer]]) -> Report:
        """See `check_layers`."""
        stacks = [_ancestry(self._bench, layer) for _, layer in layers]
        shelf = self._shelf
        shelf.know(layer for stack in stacks for layer in stack)
        shelf.know(layer for _, layer in layers)
        parts = [
            _part(shelf, name, layer, below)
            for (name, layer), below in zip(layers, stacks, strict=True)
        ]
        case = Case(parts, shelf.same)
        findings = [finding for rule in _RULES for finding in rule(case)]
        if self._deep:
            path = merge(layer.config.run for _, layer in layers).env.get("PATH") or _PATH
            deeper = DeepCase(case, shelf.read, [raw(each) for each in path.split(":") if each])
            findings += [finding for rule in _DEEP_RULES for finding in rule(deeper)]
        shelf.forget(Kind.WORKSPACE)
        return _report([name for name, _ in layers], self._deep, findings)


class _Shelf:
    """All layers that the rules may look at, each opened when it is needed, by digest."""

    def __init__(self, bench: Workbench, deep: bool) -> None:
        self._deep = deep
        self._bench = bench
        self._layers: dict[str, MountLayer] = {}
        self._opened: dict[str, tuple[OpenedLayer, contextlib.ExitStack]] = {}
        self._parts: dict[tuple[str, str], Part] = {}
        self._data = FileData()

    def know(self, layers: Iterable[MountLayer]) -> None:
        for layer in layers:
            self._layers.setdefault(layer.descriptor.digest, layer)

    def open(self, digest: str) -> OpenedLayer:
        if digest not in self._opened:
            stack = contextlib.ExitStack()
            (found,) = stack.enter_context(opened(self._bench, (self._layers[digest],)))
            self._opened[digest] = found, stack
        return self._opened[digest][0]

    def forget(self, kind: Kind | None = None) -> None:
        """Close the layers of this kind: few compositions have the same, and each takes memory."""
        gone = {
            digest
            for digest, layer in self._layers.items()
            if kind is None or layer.config.kind is kind
        }
        for digest in gone & self._opened.keys():
            self._opened.pop(digest)[1].close()
        self._parts = {key: part for key, part in self._parts.items() if key[1] not in gone}

    def close(self) -> None:
        self.forget()

    def same(self, one: Part, other: Part, path: bytes) -> bool | None:
        mine, theirs = self._place(one, one.by_path[path]), self._place(other, other.by_path[path])
        return self._data.compare(mine, theirs, read=self._deep).equal

    def read(self, part: Part, entry: Entry, offset: int, length: int) -> bytes:
        return self._data.read(self._place(part, entry), offset, length)

    def part(self, name: str, digest: str) -> Part:
        """A layer of which only the tree matters."""
        if (name, digest) not in self._parts:
            self._parts[name, digest] = Part(name, digest, lambda: self.open(digest).tree)
        return self._parts[name, digest]

    def _place(self, part: Part, entry: Entry) -> Place:
        return Place(self.open(part.digest), entry)


def _part(shelf: _Shelf, name: str, layer: MountLayer, ancestry: Sequence[MountLayer]) -> Part:
    digest = layer.descriptor.digest
    lineage = frozenset(each.descriptor.digest for each in ancestry)
    below: tuple[Part, ...] | None = ()
    if layer.config.kind is not Kind.BASE:
        below = _built_on(shelf, ancestry)
    return Part(name, digest, lambda: shelf.part(name, digest).tree, below, lineage)


def _built_on(shelf: _Shelf, ancestry: Sequence[MountLayer]) -> tuple[Part, ...] | None:
    """The layers that lay below, lowest first; None unless they reach down to a base."""
    kinds = [each.config.kind for each in ancestry]
    if Kind.BASE not in kinds:
        return None
    stack = ancestry[: kinds.index(Kind.BASE) + 1]
    return tuple(shelf.part(str(each), each.descriptor.digest) for each in reversed(stack))


def _ancestry(bench: Workbench, layer: MountLayer) -> list[MountLayer]:
    """The layers that it was built on, nearest first, as far as they are known here."""
    found: list[MountLayer] = []
    at = layer
    while (below := at.config.provenance.base) and len(found) < _MAX_DEPTH:
        try:
            at = bench.layer(bench.by_digest(below))
        except NotFoundError:
            break
        found.append(at)
    return found


def _report(names: Sequence[str], deep: bool, findings: Sequence[Finding]) -> Report:
    worst = list(Severity)
    ordered = sorted(findings, key=lambda each: (worst.index(each.severity), each.path or ""))
    counts = [finding.severity for finding in findings]
    return Report(
        layers=tuple(names),
        deep=deep,
        errors=counts.count(Severity.ERROR),
        warnings=counts.count(Severity.WARNING),
        infos=counts.count(Severity.INFO),
        findings=tuple(ordered),
    )
