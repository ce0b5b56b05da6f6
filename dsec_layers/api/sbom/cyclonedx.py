"""A bill of materials as CycloneDX 1.6 in JSON.

Its components are the layers, and those of a layer are the packages that it brings. The same
environment gives the same bytes: the serial number follows from its digest, and the time is the
epoch that its layers were built with, else 1970.
"""

from __future__ import annotations

import datetime
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from dsec_layers.api.sbom.collecting import Found, Inventory
from dsec_layers.api.sbom.packages import Package
from dsec_layers.api.workbench import Stack
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.environment import REFERENCE_KEY
from dsec_layers.model.manifest import Descriptor

PATH: Final = "dev.dsec:path"
NOTE: Final = "dev.dsec:note"
_NAMESPACE: Final = uuid.UUID("7f1d5a0e-7c0b-4d35-9a3e-0d7a5d5ec001")
_MAX_SECONDS: Final = 253402300799  # the end of the year 9999


def document(stack: Stack, inventory: Inventory) -> str:
    """The bill of materials of `stack`. Raises nothing that `inventory` could cause."""
    subject = _container(str(stack.reference), stack.descriptor, stack.descriptor.digest)
    notes = [f"{note.path} {note.layer}: {note.message}".strip() for note in inventory.notes]
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, stack.descriptor.digest),
        metadata=BomMetaData(
            timestamp=_epoch(stack.layers),
            component=subject,
            properties=[Property(name=NOTE, value=_clean(note)) for note in notes],
        ),
    )
    layers = _layers(stack, inventory)
    bom.components.update(layers)
    bom.register_dependency(subject, layers)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _layers(stack: Stack, inventory: Inventory) -> list[Component]:
    """The layers, each with the packages that it brings; one may be in several places."""
    places: list[defaultdict[str, list[Found]]] = [defaultdict(list) for _ in stack.layers]
    for each in inventory.found:
        places[each.layer][_purl(each.package, inventory.release).to_string()].append(each)
    licenses = LicenseFactory()
    return [
        _container(
            _name(layer),
            layer.descriptor,
            f"layer:{layer.descriptor.digest}",
            [
                _package(found, _purl(found[0].package, inventory.release), number, licenses)
                for found in places[number].values()
            ],
        )
        for number, layer in enumerate(stack.layers)
    ]


def _package(
    found: Sequence[Found], purl: PackageURL, number: int, licenses: LicenseFactory
) -> Component:
    package = found[0].package
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=f"{number}:{purl.to_string()}",
        purl=purl,
        licenses=[licenses.make_from_string(package.license)] if package.license else (),
        properties=[Property(name=PATH, value=_clean("/" + one.path)) for one in found],
    )


def _purl(package: Package, release: tuple[str, str]) -> PackageURL:
    """The package URL; packages of a distribution say which one it is."""
    namespace, name = "", package.name
    qualifiers: dict[str, str] = {}
    if package.kind in ("deb", "apk", "rpm"):
        distribution, version = release
        namespace = distribution or {"deb": "debian", "apk": "alpine", "rpm": "linux"}[package.kind]
        qualifiers = {
            "arch": package.arch,
            "distro": "-".join(filter(None, release)) if version else "",
            "upstream": package.source if package.source != package.name else "",
        }
    elif package.kind == "npm" and "/" in name:
        namespace, _, name = name.partition("/")
    kept = {key: value for key, value in qualifiers.items() if value}
    return PackageURL(package.kind, namespace or None, name, package.version, kept)


def _container(
    name: str, descriptor: Descriptor, reference: str, components: Iterable[Component] = ()
) -> Component:
    content = descriptor.parsed_digest.hex
    return Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=descriptor.digest,
        bom_ref=reference,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content)],
        components=components,
    )


def _name(layer: MountLayer) -> str:
    named = layer.descriptor.annotations.get(REFERENCE_KEY)
    return named or f"{layer.config.kind.value}/{layer.config.name}"


def _epoch(layers: Sequence[MountLayer]) -> datetime.datetime:
    given = (layer.config.provenance.source_date_epoch or 0 for layer in layers)
    seconds = min(max(0, *given, 0), _MAX_SECONDS)
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _clean(text: str) -> str:
    """Text without control characters, which some readers of JSON do not take."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)
