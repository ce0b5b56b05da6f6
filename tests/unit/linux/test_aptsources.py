from __future__ import annotations

import pytest

from dsec_layers.linux.aptsources import Source, parse, render

ONE_LINE = """# a comment
deb http://mirror/os bookworm main contrib # trailing
deb-src [arch=amd64,arm64 signed-by=/k/a.gpg trusted=yes] https://mirror/os bookworm main

deb [ arch=amd64 ] file:///srv/flat ./
not a source
"""
DEB822 = """# a comment
Types: deb
# another, inside
URIs: http://mirror/os
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://off/
Suites: bookworm
Components: main

types: deb
uris: http://mirror/security
suites: bookworm-security
components: main
"""


def test_one_line_sources() -> None:
    first, second, flat = parse(ONE_LINE, "sources.list")
    assert first.get("URIs") == "http://mirror/os"
    assert first.get("Components") == "main contrib"
    assert second.get("Types") == "deb-src"
    assert second.get("Architectures") == "amd64 arm64"
    assert second.get("Signed-By") == "/k/a.gpg"
    assert second.get("Trusted") == "yes"
    assert (flat.get("Suites"), flat.get("Components")) == ("./", "")


def test_deb822_sources() -> None:
    first, second = parse(DEB822, "debian.sources")
    assert first.get("suites").split() == ["bookworm", "bookworm-updates"]
    assert "BEGIN PGP" in first.get("Signed-By")
    assert second.get("URIs") == "http://mirror/security"


def test_rendered_sources_are_the_same_again() -> None:
    sources = [*parse(ONE_LINE, "a.list"), *parse(DEB822, "a.sources")]
    assert list(parse(render(sources), "b.sources")) == sources


@pytest.mark.parametrize("name", ["debian.sources.disabled", "x.list.save", "README", "sources"])
def test_files_that_apt_does_not_read_have_no_source(name: str) -> None:
    assert list(parse(ONE_LINE + DEB822, name)) == []


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("deb http://m/os bookworm main", True),
        ("deb http://m/os bookworm-updates main non-free-firmware", True),
        ("deb http://m/security bookworm-security main", True),
        ("deb http://m/ubuntu bookworm universe", True),
        ("deb http://m/os trixie main", False),
        ("deb http://m/node nodistro main", False),
        ("deb https://m/docker bookworm stable", False),
        ("deb https://m/pgdg bookworm-pgdg main", False),
        ("deb https://m/flat ./", False),
    ],
)
def test_other_vendors_archives_are_told_apart(line: str, own: bool) -> None:
    (source,) = parse(line, "x.list")
    assert source.is_of("bookworm") is own


def test_a_field_is_replaced_whatever_its_case() -> None:
    source = Source((("Types", "deb"), ("uris", "a")))
    assert source.replace("URIs", "b") == Source((("Types", "deb"), ("URIs", "b")))
