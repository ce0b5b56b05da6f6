"""Packages in `installed` of apk: paragraphs of lines `letter:value`."""

from __future__ import annotations

from dsec_layers.api.sbom.packages import Broken, Package, Parsed, checked, plain


def parse(data: bytes) -> Parsed:
    """The packages that are installed."""
    fields: dict[str, str] = {}
    for line in [*plain(data).splitlines(), ""]:
        letter, colon, value = line.partition(":")
        if line and colon and len(letter) == 1:
            fields.setdefault(letter, value)
        elif not line and fields:
            yield _package(fields)
            fields = {}


def _package(fields: dict[str, str]) -> Package | Broken:
    arch, source, license_ = (fields.get(letter, "") for letter in "AoL")
    name, version = fields.get("P", ""), fields.get("V", "")
    return checked(Package("apk", name, version, arch, source, license_))
