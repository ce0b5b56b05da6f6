"""Environments: layers put together by reference, without touching their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsec_layers.api.checking import Report, check_layers
from dsec_layers.api.publishing import check_name
from dsec_layers.api.rows import LayerRow, sum_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.environment import Environment
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import merge
from dsec_layers.registry import leases, tagging


def compose(
    bench: Workbench,
    parts: Sequence[Reference],
    reference: Reference,
    *,
    on_report: Callable[[Report], None] | None = None,
) -> LayerRow:
    """Tag `reference` as the environment of `parts`: one base, a workspace, toolkits in order.

    Reads manifests and configs, and the metadata only when there is `on_report`: it is told what
    may be wrong before anything is written, and what it raises ends all. Raises InvalidInputError,
    NotFoundError, SignatureError, CorruptError.
    """
    if reference.kind is not Kind.ENV:
        raise InvalidInputError(f"{reference} is not an environment", hint="name it env/...")
    check_name(reference)
    ordered = _ordered(bench, parts)
    environment = _environment(ordered)
    if on_report is not None:
        on_report(_report(bench, ordered, deep=False))
    descriptor = environment.descriptor()
    layers = tuple(bench.layer(layer) for layer in environment.layers)
    blobs = (blob for layer in layers for blob in (layer.descriptor, *layer.manifest.blobs))
    with leases.hold(bench.local, (descriptor, *blobs), purpose="compose") as held:
        bench.local.put(descriptor, environment.encode())
        for layer in environment.layers:
            bench.by_digest(
                layer.digest
            )  # what has just been collected is fetched again, or missed
        held.check()
        tagging.set_tag(bench.local, reference, descriptor)
    return sum_row(str(reference), descriptor.digest, layers)


def check(bench: Workbench, parts: Sequence[Reference], *, deep: bool = False) -> Report:
    """What may be wrong with an environment of `parts`; nothing is written but metadata.

    With `deep` data is read too. Raises as `compose`, or StoreError.
    """
    ordered = _ordered(bench, parts)
    _environment(ordered)
    return _report(bench, ordered, deep=deep)


_Ordered = Sequence[tuple[Reference, MountLayer]]


def _ordered(bench: Workbench, parts: Sequence[Reference]) -> _Ordered:
    """The layers of `parts`, lowest first."""
    if any(part.kind is Kind.ENV for part in parts):
        raise InvalidInputError("an environment is composed of layers, not of environments")
    found = [(part, bench.layer(bench.trusted(part))) for part in parts]
    for part, layer in found:
        if layer.config.kind is not part.kind:
            raise InvalidInputError(
                f"{part} is a {layer.config.kind.value}, not a {part.kind.value}"
            )
    return sorted(found, key=lambda each: each[0].kind.rank)


def _environment(ordered: _Ordered) -> Environment:
    run = merge(layer.config.run for _, layer in ordered)
    return Environment.of(
        [
            (part.kind, str(part), layer.descriptor.carrying(layer.manifest.encode()))
            for part, layer in ordered
        ],
        run,
    )


def _report(bench: Workbench, ordered: _Ordered, *, deep: bool) -> Report:
    named = [(str(part), layer) for part, layer in ordered]
    return check_layers(bench, named, deep=deep)
