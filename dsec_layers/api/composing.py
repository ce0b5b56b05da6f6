"""Environments: layers put together by reference, without touching their data."""

from __future__ import annotations

from collections.abc import Sequence

from dsec_layers.api.rows import LayerRow, sum_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.environment import Environment
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import merge


def compose(bench: Workbench, parts: Sequence[Reference], reference: Reference) -> LayerRow:
    """Tag `reference` as the environment of `parts`: one base, a workspace, toolkits in order.

    Reads manifests and configs only. Raises InvalidInputError, NotFoundError, CorruptError.
    """
    if reference.kind is not Kind.ENV:
        raise InvalidInputError(f"{reference} is not an environment", hint="name it env/...")
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
    descriptor = environment.descriptor()
    bench.local.put(descriptor, environment.encode())
    bench.local.tag(reference, descriptor)
    layers = tuple(bench.layer(layer) for layer in environment.layers)
    return sum_row(str(reference), descriptor.digest, layers)
