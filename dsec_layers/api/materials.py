"""The bill of materials of a layer or environment, from its metadata and the few files it needs."""

from __future__ import annotations

import msgspec

from dsec_layers.api.sbom.collecting import Note, collect
from dsec_layers.api.sbom.cyclonedx import document
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference


class Materials(msgspec.Struct, frozen=True):
    """A CycloneDX document in JSON, how many packages it names, and what could not be read."""

    document: str
    packages: int
    notes: tuple[Note, ...]


def materials(bench: Workbench, reference: Reference) -> Materials:
    """What `reference` is made of; nothing is mounted.

    A layer is looked at on what it was built on. Raises NotFoundError, CorruptError or StoreError.
    """
    stack = bench.stack(reference)
    inventory = collect(bench, stack)
    packages = len({found.package for found in inventory.found})
    return Materials(document(stack, inventory), packages, inventory.notes)
