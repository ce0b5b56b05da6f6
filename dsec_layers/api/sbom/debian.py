"""Packages in dpkg's status, or in the files of `status.d` that images without dpkg have."""

from __future__ import annotations

from debian.deb822 import Deb822

from dsec_layers.api.sbom.packages import Broken, Package, Parsed, checked, plain

_FIELDS = ("Package", "Version", "Architecture", "Status", "Source")


def parse(data: bytes) -> Parsed:
    """The packages that are installed, at least in part."""
    for paragraph in Deb822.iter_paragraphs(
        plain(data).splitlines(), fields=list(_FIELDS), use_apt_pkg=False
    ):
        name = paragraph.get("Package", "")
        if paragraph.get("Status", "installed").split()[-1:] in (
            ["not-installed"],
            ["config-files"],
        ):
            continue
        if not name:
            yield Broken("a paragraph has no Package")
            continue
        arch = paragraph.get("Architecture", "")
        source = paragraph.get("Source", "").partition(" ")[0]
        yield checked(Package("deb", name, paragraph.get("Version", ""), arch, source))
