"""Bills of materials of what this machine has, against what its own package managers say."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from pathlib import Path

import pytest

from dsec_layers.api.materials import materials
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from tests.support.packed import pack_files

BASE = Reference.parse("base/b:1")
SITE = "usr/lib/python3.11/site-packages"


def packages(bench: Workbench) -> set[tuple[str, str]]:
    made = materials(bench, BASE)
    assert made.notes == ()
    (layer,) = json.loads(made.document)["components"]
    return {(each["name"], each["version"]) for each in layer["components"]}


@pytest.mark.peers("dpkg-query")
def test_what_dpkg_knows(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    pack_files(bench, BASE, {"var/lib/dpkg/status": Path("/var/lib/dpkg/status").read_bytes()})
    form = "${db:Status-Status} ${Package} ${Version}\n"
    said = subprocess.run(
        ["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in said.splitlines()]
    expected = {(row[1], row[2]) for row in rows if row[0] not in ("not-installed", "config-files")}
    assert packages(bench) == expected


def test_what_python_knows(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    files = {}
    expected = set()
    for each in importlib.metadata.distributions():
        text = each.read_text("METADATA")
        if text is not None:
            name = re.sub(r"\W", "_", each.metadata["Name"])
            files[f"{SITE}/{name}-{each.version}.dist-info/METADATA"] = text.encode()
            expected.add((each.metadata["Name"], each.version))
    assert len(expected) > 20
    pack_files(bench, BASE, files)
    assert packages(bench) == expected
