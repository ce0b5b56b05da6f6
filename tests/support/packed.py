"""Layers of plain files, packed into the local store of a workbench."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from dsec_layers.api.publishing import publish
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.manifest import Descriptor, Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.sources.directory import walk
from dsec_layers.sources.times import clamp_times


def pack_files(
    bench: Workbench,
    reference: Reference,
    files: Mapping[str, bytes],
    *,
    base: Descriptor | None = None,
    run: RunConfig | None = None,
) -> None:
    """Make the layer `reference` of these files, built on `base`; all times are 0."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        for path, data in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        provenance = Provenance(source="build", base=base.digest if base else "")
        source = clamp_times(walk(root), 0)
        publish(bench, source, reference, run=run or RunConfig(), provenance=provenance)
