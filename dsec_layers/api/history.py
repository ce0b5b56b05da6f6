"""What a layer or environment is made of, layer by layer, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dsec_layers.api.rows import LayerRow, layer_row
from dsec_layers.api.workbench import Workbench
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig, merge


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the run configuration, such as `env.PATH`, that a layer changes.

    `before` is what layers below made it, None when there was none; lists are written in JSON.
    """

    name: str
    before: str | None
    after: str | None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A layer and its provenance. What is not known is empty.

    `base` is the digest of the layer it was built on, `base_name` what that is called here.
    """

    layer: LayerRow
    source: str
    base: str
    base_name: str
    layerfile_digest: str
    inputs: Mapping[str, str]
    source_date_epoch: int | None
    run: tuple[Setting, ...]


def history(bench: Workbench, reference: Reference) -> tuple[Made, ...]:
    """The layers that `reference` stands for, lowest first.

    Raises NotFoundError, CorruptError or StoreError.
    """
    layers = bench.stack(reference).layers
    names = _names(bench, layers)
    runs = [merge(layer.config.run for layer in layers[:count]) for count in range(len(layers) + 1)]
    return tuple(
        _made(layer, names, settings(runs[number], runs[number + 1]))
        for number, layer in enumerate(layers)
    )


def settings(before: RunConfig, after: RunConfig) -> tuple[Setting, ...]:
    """What is set anew, changed or dropped between two run configurations, by name."""
    old, new = _flat(before), _flat(after)
    return tuple(
        Setting(name=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _flat(run: RunConfig) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in msgspec.to_builtins(run).items():  # members without a wish are left out
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": _word(each) for key, each in value.items()}
        elif value is not None:
            flat[name] = _word(value)
    return flat


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _names(bench: Workbench, layers: Sequence[MountLayer]) -> dict[str, str]:
    """What layers are called by digest: by the tags here, else by the environment."""
    names = {layer.descriptor.digest: layer.reference for layer in layers}
    for tag, descriptor in bench.local.tags():
        names[descriptor.digest] = names.get(descriptor.digest) or str(tag)
    return names


def _made(layer: MountLayer, names: Mapping[str, str], run: tuple[Setting, ...]) -> Made:
    provenance = layer.config.provenance
    known = names[layer.descriptor.digest]
    return Made(
        layer=layer_row(layer, known or f"{layer.config.kind.value}/{layer.config.name}"),
        source=provenance.source,
        base=provenance.base,
        base_name=names.get(provenance.base, ""),
        layerfile_digest=provenance.layerfile_digest,
        inputs=provenance.inputs,
        source_date_epoch=provenance.source_date_epoch,
        run=run,
    )
