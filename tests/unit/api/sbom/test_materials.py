"""Bills of materials of real layers: what is seen, whose it is, and the same bytes every time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from dsec_layers.api import composing, contents, importing
from dsec_layers.api.materials import Materials, materials
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from tests.support.packed import pack_files
from tests.support.rpms import database, package

BASE, WORK, TOOL, ENV = map(
    Reference.parse, ("base/b:1", "workspace/w:1", "toolkit/t:1", "env/e:1")
)
SITE = "usr/lib/python3.11/site-packages"
RELEASE = b'NAME="Debian"\nID=debian\nVERSION_ID="12"\n'


def dpkg(*packages: str) -> bytes:
    paragraphs = []
    for each in packages:
        name, _, version = each.partition("=")
        state = "Status: install ok installed\nArchitecture: amd64\n"
        paragraphs.append(f"Package: {name}\n{state}Version: {version}\n")
    return "\n".join(paragraphs).encode()


def dist(name: str, version: str) -> dict[str, bytes]:
    path = f"{SITE}/{name}-{version}.dist-info/METADATA"
    return {path: f"Name: {name}\nVersion: {version}\nLicense: MIT\n\ntext".encode()}


def npm(name: str, version: str) -> dict[str, bytes]:
    document = json.dumps({"name": name, "version": version}).encode()
    return {f"app/node_modules/{name}/package.json": document}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    status = "var/lib/dpkg/status"
    base = {status: dpkg("libc6=2.36", "bash=5.2"), "etc/os-release": RELEASE}
    pack_files(made, BASE, {**base, **dist("pip", "23.0")})
    bench_base = made.resolve(BASE)
    work = {status: dpkg("libc6=2.37", "bash=5.2", "git=1:2.39"), **npm("@types/node", "20.1.0")}
    pack_files(made, WORK, {**work, **dist("Flask_Login", "0.6")}, base=bench_base)
    pack_files(made, TOOL, {**dist("rich", "13.7"), "opt/data": os.urandom(4000)}, base=bench_base)
    composing.compose(made, [BASE, WORK, TOOL], ENV)
    return made


def checked(made: Materials) -> dict[str, Any]:
    """The document, which must be valid."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made.document) is None
    document = json.loads(made.document)
    assert isinstance(document, dict)
    return document


def packages(document: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The layers that bring each package, by its URL."""
    found: dict[str, tuple[str, ...]] = {}
    for layer in document["components"]:
        for each in layer.get("components", ()):
            found[each["purl"]] = (*found.get(each["purl"], ()), layer["name"])
    return found


def test_an_environment(bench: Workbench) -> None:
    made = materials(bench, ENV)
    document = checked(made)
    debian = "?arch=amd64&distro=debian-12"
    assert packages(document) == {
        f"pkg:deb/debian/bash@5.2{debian}": (str(BASE),),
        f"pkg:deb/debian/git@1:2.39{debian}": (str(WORK),),
        f"pkg:deb/debian/libc6@2.37{debian}": (str(WORK),),
        "pkg:npm/%40types/node@20.1.0": (str(WORK),),
        "pkg:pypi/flask-login@0.6": (str(WORK),),
        "pkg:pypi/pip@23.0": (str(BASE),),
        "pkg:pypi/rich@13.7": (str(TOOL),),
    }
    assert (made.packages, made.notes) == (7, ())
    subject = document["metadata"]["component"]
    assert (subject["name"], subject["version"]) == (str(ENV), bench.resolve(ENV).digest)
    layers = {each["name"]: each for each in document["components"]}
    assert {name: each["version"] for name, each in layers.items()} == {
        str(each): bench.resolve(each).digest for each in (BASE, WORK, TOOL)
    }
    (rich,) = layers[str(TOOL)]["components"]
    assert rich["licenses"] == [{"license": {"id": "MIT"}}]
    path = f"/{SITE}/rich-13.7.dist-info/METADATA"
    assert rich["properties"] == [{"name": "dev.dsec:path", "value": path}]


def test_the_same_bytes_and_little_data(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = materials(bench, ENV).document
    read = contents.read_chunk
    chunks: list[int] = []

    def counted(*given: Any) -> bytes:
        chunks.append(given[1].length)
        return read(*given)

    monkeypatch.setattr(contents, "read_chunk", counted)
    assert materials(Workbench(bench.home.root), ENV).document == first
    assert chunks
    assert "1970-01-01T00:00:00" in first


def test_hidden_packages_do_not_appear(bench: Workbench, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path in (f"{SITE}/pip-23.0.dist-info", "var/lib/dpkg/status"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"now a file")
    importing.import_(bench, str(root), Reference.parse("base/other:1"))
    found = packages(checked(materials(bench, Reference.parse("base/other:1"))))
    assert found == {}
    pack_files(bench, TOOL, {f"{SITE}/pip-23.0.dist-info": b"x"}, base=bench.resolve(BASE))
    assert not any("pip" in each for each in packages(checked(materials(bench, TOOL))))


def test_a_database_that_hides_another_layers(bench: Workbench) -> None:
    status = {"var/lib/dpkg/status": dpkg("libc6=2.36", "bash=5.2", "jq=1.6")}
    pack_files(bench, TOOL, status, base=bench.resolve(BASE))
    composing.compose(bench, [BASE, WORK, TOOL], ENV)
    made = materials(bench, ENV)
    found = packages(checked(made))
    assert [name for name in found if "git" in name] == []
    assert found["pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"] == (str(TOOL),)
    assert found["pkg:deb/debian/bash@5.2?arch=amd64&distro=debian-12"] == (str(BASE),)
    (note,) = made.notes
    assert note.path == "/var/lib/dpkg/status"
    assert note.message.startswith("hides 1 packages that workspace/w:1")
    named = {each["name"]: each["value"] for each in checked(made)["metadata"]["properties"]}
    assert "hides 1 packages" in named["dev.dsec:note"]


def test_other_package_managers(tmp_path: Path) -> None:
    made = Workbench(tmp_path / "home")
    (tmp_path / "db").mkdir()
    rpms = database(tmp_path / "db", [package("bash", "5.2", "3.fc40"), b"\0\0"])
    files = {
        "usr/lib/sysimage/rpm/rpmdb.sqlite": rpms,
        "usr/lib/sysimage/rpm/rpmdb.sqlite-wal": b"x",
        "var/lib/rpm/Packages": b"\0" * 100,
        "lib/apk/db/installed": b"P:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\no:musl\n\n",
        "var/lib/dpkg/status.d/tzdata": b"Package: tzdata\nVersion: 2024a\nArchitecture: all\n",
        "a/node_modules/x/package.json": b"{",
        "b/node_modules/y/package.json": b'{"name":"y","version":"1","license":"\\u0007"}',
        "c/node_modules/y/package.json": b'{"name":"y","version":"1"}',
    }
    pack_files(made, BASE, files)
    bill = materials(made, BASE)
    document = checked(bill)
    assert packages(document) == {
        "pkg:apk/alpine/musl@1.2.5-r0?arch=x86_64": ("base/b",),
        "pkg:deb/debian/tzdata@2024a?arch=all": ("base/b",),
        "pkg:npm/y@1": ("base/b",),
        "pkg:rpm/linux/bash@5.2-3.fc40?arch=x86_64": ("base/b",),
    }
    assert [(note.path.rpartition("/")[2], note.message.split(" ")[0]) for note in bill.notes] == [
        ("package.json", "package.json"),
        ("rpmdb.sqlite", "a"),
        ("rpmdb.sqlite-wal", "changes"),
        ("Packages", "the"),
    ]


def test_very_many_notes_are_few(tmp_path: Path) -> None:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"var/lib/dpkg/status": b"Version: 1\n\n" * 1000})
    notes = materials(made, BASE).notes
    assert len(notes) == 201
    assert notes[-1].message == "800 more notes are left out"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"n/node_modules/x/package.json": b" " * (1 << 20) + b"{}"})
    (note,) = materials(made, BASE).notes
    assert note.message == "1048578 bytes are more than such a file may have"
    assert not list((made.home.root / "making").iterdir())


def test_nothing_at_all(tmp_path: Path) -> None:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"a": b"a"})
    assert packages(checked(materials(made, BASE))) == {}
