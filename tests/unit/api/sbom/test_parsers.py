"""What package managers write, understood; what nobody would write, told or passed over."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.api.sbom import alpine, debian, npm, pypi, rpm
from dsec_layers.api.sbom.keepers import Keeper, keeper
from dsec_layers.api.sbom.packages import Broken, Package, Parse
from dsec_layers.errors import CorruptError
from tests.support.rpms import database, header, package

STATUS = b"""\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc (2.36-9)
Version: 2.36-9+deb12u4
Description: GNU C Library
 text
 .
 more

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: half
Status: install ok half-configured
Architecture: all
Version: 1:2~rc-3
"""


def told(found: Iterable[Package | Broken]) -> list[str]:
    """Names and versions, and problems."""
    return [
        each.problem if isinstance(each, Broken) else f"{each.name} {each.version}"
        for each in found
    ]


def test_dpkg() -> None:
    libc, half = debian.parse(STATUS)
    assert libc == Package("deb", "libc6", "2.36-9+deb12u4", "amd64", "glibc")
    assert half == Package("deb", "half", "1:2~rc-3", "all")
    (one,) = debian.parse(b"Package: tzdata\nVersion: 2024a\nArchitecture: all\n")
    assert isinstance(one, Package), "a file of status.d has no Status"
    cut = STATUS[: STATUS.index(b"+deb12u4")]
    assert told(debian.parse(cut)) == ["libc6 2.36-9"]
    assert "no usable version" in told(debian.parse(b"Package: cut\nVers"))[0]
    assert told(debian.parse(b"Version: 1\n")) == ["a paragraph has no Package"]
    assert told(debian.parse(b"\xff\xfe\0\n\n\x80")) == []


def test_apk() -> None:
    data = b"C:Q1x\nP:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\no:musl\nF:lib\nR:x\n\nP:busybox\nV:1.36\n"
    musl, busybox = alpine.parse(data)
    assert musl == Package("apk", "musl", "1.2.5-r0", "x86_64", "musl", "MIT")
    assert busybox == Package("apk", "busybox", "1.36")
    assert told(alpine.parse(b"P:musl\nV")) == ["a apk package has no usable version: ''"]
    assert told(alpine.parse(b"")) == []


def test_python() -> None:
    data = b"Metadata-Version: 2.1\nName: Flask\nVersion: 3.0.0\nLicense: BSD\n\nVersion: 9\n"
    assert list(pypi.parse(data)) == [Package("pypi", "Flask", "3.0.0", license="BSD")]
    assert told(pypi.parse(data.replace(b"\n", b"\r\n"))) == ["Flask 3.0.0"]
    assert "no usable name" in told(pypi.parse(b"\xff\xfe"))[0]
    long = b"Name: x\nVersion: 1\nLicense: " + b"text " * 1000
    assert list(pypi.parse(long)) == [Package("pypi", "x", "1")]


def test_npm() -> None:
    data = b'{"name":"@types/node","version":"20.1.0","license":"MIT","scripts":{"a":1}}'
    assert list(npm.parse(data)) == [Package("npm", "@types/node", "20.1.0", license="MIT")]
    assert list(npm.parse(b'{"type":"module"}')) == []
    assert list(npm.parse(b'\xef\xbb\xbf{"name":"a","version":"1","license":{"type":"x"}}')) == [
        Package("npm", "a", "1")
    ]
    for bad in (b"", b"[]", b"{", b'{"name":1}', b"\xff", b'{"a":' * 100_000):
        with pytest.raises(CorruptError, match=r"package\.json is malformed"):
            list(npm.parse(bad))


def test_rpm(tmp_path: Path) -> None:
    headers = [
        package("bash", "5.2", "3.fc40"),
        package("shadow", "4", "1", epoch=2),
        package("gpg-pubkey", "a15b79cc"),
        header({1000: "bare"}),
        b"\0" * 7,
        header({1000: "x", 1001: "1"})[:-1],
        (2**31).to_bytes(4, "big") * 2,
    ]
    database(tmp_path, headers)
    bash, shadow, bare, *cut = rpm.parse(tmp_path / "rpmdb.sqlite")
    assert bash == Package("rpm", "bash", "5.2-3.fc40", "x86_64", "", "MIT")
    assert isinstance(shadow, Package)
    assert shadow.version == "2:4-1"
    assert told([bare, *cut])[1:] == ["a header of rpm is cut short"] * 3
    assert "no usable version" in told([bare])[0]


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE VIEW Packages AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) "
        "SELECT x AS hnum, x'' AS blob FROM n",
        "CREATE VIEW Packages AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
        "SELECT x AS hnum, x AS blob FROM n WHERE x < 0",
        "CREATE TABLE Other (x)",
    ],
)
def test_a_hostile_database_ends(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "hostile"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute(schema)
    with pytest.raises(CorruptError, match="the database of rpm is malformed"):
        for _ in rpm.parse(path):
            pass


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    whole = database(tmp_path, [package("bash", "5", "1")] * 100)
    for data in (b"", b"text" * 1000, whole[:1000], whole[:5000] + b"\xff" * 5000):
        path = tmp_path / "damaged"
        path.write_bytes(data)
        with pytest.raises(CorruptError):
            list(rpm.parse(path))


@given(
    st.binary(max_size=300), st.sampled_from([debian.parse, alpine.parse, pypi.parse, npm.parse])
)
def test_any_bytes(data: bytes, parse: Parse) -> None:
    try:
        found = list(parse(data))
    except CorruptError:
        return
    for each in found:
        assert isinstance(each, Broken) or (each.name.isprintable() and each.version)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("var/lib/dpkg/status", Keeper.DPKG),
        ("var/lib/dpkg/status-old", None),
        ("var/lib/dpkg/status.d/base", Keeper.DPKG_ONE),
        ("var/lib/dpkg/status.d/base.md5sums", None),
        ("lib/apk/db/installed", Keeper.APK),
        ("usr/lib/apk/db/installed", Keeper.APK),
        ("usr/lib/sysimage/rpm/rpmdb.sqlite", Keeper.RPM),
        ("var/lib/rpm/Packages", Keeper.RPM_REFUSED),
        ("var/lib/rpm/Packages.db", Keeper.RPM_REFUSED),
        ("opt/v/lib/python3.11/site-packages/a-1.dist-info/METADATA", Keeper.PYPI),
        ("usr/lib/python3/dist-packages/a.egg-info", Keeper.PYPI),
        ("usr/lib/python3/dist-packages/a.egg-info/PKG-INFO", Keeper.PYPI),
        ("app/node_modules/left-pad/package.json", Keeper.NPM),
        ("app/node_modules/@types/node/package.json", Keeper.NPM),
        ("app/node_modules/a/node_modules/b/package.json", Keeper.NPM),
        ("app/node_modules/a/lib/package.json", None),
        ("app/package.json", None),
        ("status", None),
    ],
)
def test_where_packages_are_told_of(path: str, kind: Keeper | None) -> None:
    assert keeper(path.encode()) is kind
