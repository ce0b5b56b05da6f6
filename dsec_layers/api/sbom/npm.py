"""A package of npm: the `package.json` in its folder below `node_modules`."""

from __future__ import annotations

from typing import Any

import msgspec

from dsec_layers.api.sbom.packages import Package, Parsed, checked
from dsec_layers.errors import CorruptError


class _Manifest(msgspec.Struct):
    name: str = ""
    version: str = ""
    license: Any = ""


def parse(data: bytes) -> Parsed:
    """The one package; a manifest without name and version only marks a folder."""
    try:
        manifest = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"package.json is malformed: {error}") from error
    if not manifest.name and not manifest.version:
        return
    license_ = manifest.license if isinstance(manifest.license, str) else ""
    yield checked(Package("npm", manifest.name, manifest.version, license=license_))
