"""Images of others, in registries and in files, as base layers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.api.workbench import Workbench
from dsec_layers.model.content import Source
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.runconfig import RunConfig

SCHEME: Final = "docker://"
_IMAGE: Final = "image"
_CONFIG: Final = "image_id"
_TRIGGERS: Final = "onbuild"

# Told the bytes fetched since its last call, and those of the whole.
Fetched = Callable[[int, int], object]


class Found(msgspec.Struct, frozen=True):
    """What was read: a tree, how to run it, and what the layer's provenance tells of the image."""

    source: Source
    run: RunConfig
    inputs: dict[str, str]


def read_remote(
    bench: Workbench,
    name: ImageName,
    spool: Path,
    fetched: Fetched = lambda _done, _total: None,
) -> Found:
    """Fetch the image `name` for this machine; contents are in `spool` as long as they are needed.

    Raises InvalidInputError, NotFoundError, CorruptError, StoreError or NoSpaceError.
    """
    from dsec_layers.registry.oci.images import find_image
    from dsec_layers.registry.oci.settings import Settings
    from dsec_layers.sources.oci import fetch_image
    from dsec_layers.sources.ocifetch import FetchedFiles

    settings = Settings.load(bench.home.root)
    with find_image(name, settings) as remote:
        files = FetchedFiles(remote, spool, fetched)
        try:
            image = fetch_image(files, spool)
        finally:
            files.close()
    inputs = image_inputs(image.digest, image.triggers)
    plain = ImageName(name.host, name.path, name.tag)
    return Found(image.source, image.run, {**inputs, _IMAGE: f"{plain}@{remote.digest}"})


def current_digest(bench: Workbench, name: ImageName) -> str:
    """The digest that the registry has under the name now. Raises as `read_remote`."""
    from dsec_layers.registry.oci.images import find_image
    from dsec_layers.registry.oci.settings import Settings

    with find_image(name, Settings.load(bench.home.root)) as remote:
        return remote.digest


def image_inputs(config_digest: str, triggers: tuple[str, ...]) -> dict[str, str]:
    """What a layer tells of the image that it was made of."""
    inputs = {_CONFIG: config_digest}
    if triggers:
        inputs[_TRIGGERS] = json.dumps(triggers)
    return inputs


def image_of(provenance: Provenance) -> str:
    """The image that a layer was made of, `name@sha256:...`, or nothing."""
    return provenance.inputs.get(_IMAGE, "")


def triggers_of(provenance: Provenance) -> tuple[str, ...]:
    """The ONBUILD instructions of the image that a layer was made of."""
    return tuple(json.loads(provenance.inputs.get(_TRIGGERS, "[]")))
