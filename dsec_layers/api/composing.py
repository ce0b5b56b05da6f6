"""Environments: layers put together by reference, without touching their data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dsec_layers.api.publishing import check_name
from dsec_layers.api.rows import LayerRow, sum_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.environment import Environment
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import merge


def compose(
    bench: Workbench,
    parts: Sequence[Reference],
    reference: Reference,
    *,
    on_doubt: Callable[[str], None] = lambda _: None,
) -> LayerRow:
    """Tag `reference` as the environment of `parts`: one base, a workspace, toolkits in order.

    Reads manifests and configs only. `on_doubt` is told of each part that was built on another
    base: that is allowed, and may lack what it needs. Raises InvalidInputError, NotFoundError,
    CorruptError.
    """
    if reference.kind is not Kind.ENV:
        raise InvalidInputError(f"{reference} is not an environment", hint="name it env/...")
    check_name(reference)
    if any(part.kind is Kind.ENV for part in parts):
        raise InvalidInputError("an environment is composed of layers, not of environments")
    found = [(part, bench.layer(bench.resolve(part))) for part in parts]
    for part, layer in found:
        if layer.config.kind is not part.kind:
            raise InvalidInputError(
                f"{part} is a {layer.config.kind.value}, not a {part.kind.value}"
            )
    ordered = sorted(found, key=lambda each: each[0].kind.rank)
    run = merge(layer.config.run for _, layer in ordered)
    environment = Environment.of(
        [(part.kind, str(part), layer.descriptor) for part, layer in ordered], run
    )
    for doubt in _strangers(bench, ordered):
        on_doubt(doubt)
    descriptor = environment.descriptor()
    bench.local.put(descriptor, environment.encode())
    bench.local.tag(reference, descriptor)
    layers = tuple(bench.layer(layer) for layer in environment.layers)
    return sum_row(str(reference), descriptor.digest, layers)


def _strangers(bench: Workbench, ordered: Sequence[tuple[Reference, MountLayer]]) -> Iterator[str]:
    """A sentence for each part whose own base is neither the lowest part nor below it."""
    reference, base = ordered[0]
    known = {layer.digest for layer in _ancestry(bench, base)}
    for part, layer in ordered[1:]:
        bases = [each for each in _ancestry(bench, layer) if each.config.kind is Kind.BASE]
        if bases and bases[0].digest not in known:
            yield f"{part} was built on {bases[0]}, not on {reference}"


def _ancestry(bench: Workbench, layer: MountLayer) -> list[MountLayer]:
    """The layer and those it was built on, as far down as they are known here."""
    found = [layer]
    while (below := found[-1].config.provenance.base) and len(found) <= _MAX_DEPTH:
        try:
            found.append(bench.layer(bench.by_digest(below)))
        except NotFoundError:
            break
    return found


_MAX_DEPTH = 100
