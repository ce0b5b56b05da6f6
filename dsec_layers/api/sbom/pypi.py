"""A Python distribution: METADATA of a dist-info folder, PKG-INFO, or an egg-info file."""

from __future__ import annotations

from email.errors import MessageError
from email.parser import HeaderParser

from dsec_layers.api.sbom.packages import Package, Parsed, checked, plain
from dsec_layers.errors import CorruptError

HEAD_BYTES = 256 << 10  # fields stand before the description


def parse(data: bytes) -> Parsed:
    """The one distribution."""
    head = plain(data[:HEAD_BYTES]).replace("\r\n", "\n").partition("\n\n")[0]
    try:
        fields = HeaderParser().parsestr(head + "\n")
    except (MessageError, ValueError) as error:
        raise CorruptError(f"metadata is malformed: {error}") from error
    license_ = fields.get("License-Expression") or fields.get("License") or ""
    yield checked(
        Package(
            "pypi",
            str(fields.get("Name", "")).strip(),
            str(fields.get("Version", "")).strip(),
            license=str(license_).strip(),
        )
    )
