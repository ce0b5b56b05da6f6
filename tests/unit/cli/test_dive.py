"""`dive` as text: plain in a pipe, cut and coloured on a terminal."""

from __future__ import annotations

import json
import re

import pytest

from dsec_layers.api.dive import Dive, LayerCost, Node, Wasted
from dsec_layers.cli import dive
from tests.unit.cli import test_signing

run = test_signing.run
BASE = test_signing.BASE


def cost(name: str, wasted: int) -> LayerCost:
    counts = {"added": 1, "changed": 2, "removed": 3}
    sizes = {"size_bytes": 1000, "wasted_bytes": wasted, "stored_bytes": 700}
    return LayerCost(layer=name, digest="sha256:0", **counts, **sizes)


def node(path: str, depth: int, layer: int) -> Node:
    return Node(path=path, depth=depth, is_directory=depth < 2, size_bytes=10, layer=layer)


FOUND = Dive(
    layers=(cost("base/b:1 (abc)", 500), cost("toolkit/t:1 (def)", 0)),
    size_bytes=2000,
    wasted_bytes=500,
    efficiency=750,
    wasted=(Wasted(path="/etc/\x1bevil", copies=1, bytes=500),),
    tree=(node("/", 0, 0), node("/usr", 1, 1), node("/usr/" + "long" * 30, 2, 0)),
)


def text(width: int | None, colours: bool) -> str:
    return "\n\n".join(dive._sections(FOUND, dive._Screen(width, colours)))


def test_plain() -> None:
    lines = text(None, colours=False).splitlines()
    assert lines[0].split()[-1] == "LAYER"
    sizes = ["1.0", "kB", "500", "B", "700", "B"]
    assert lines[1].split() == ["0", "1", "2", "3", *sizes, "base/b:1", "(abc)"]
    assert "75.0 % of 2.0 kB is seen, 500 B is wasted" in lines
    assert lines[-4].split() == ["SIZE", "#", "PATH"]
    assert lines[-2].endswith("1    usr/")
    assert lines[-1].endswith("long" * 30)
    assert "\x1b" not in text(None, colours=False)


def test_on_a_terminal() -> None:
    coloured = text(60, colours=True)
    plain = re.sub(r"\x1b\[\d+m", "", coloured)
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 60
    assert plain.splitlines()[-1].endswith("lo…")
    line = next(line for line in coloured.splitlines() if line.rstrip("\x1b[0m").endswith("usr/"))
    assert line.startswith("\x1b[33m"), "the colour of layer 1"


def test_the_command(run: test_signing.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = run("dive", BASE)
    assert (status, err) == (0, "")
    assert "100.0 % of 1 B is seen, 0 B is wasted" in out
    document = json.loads(run("dive", BASE, "--json")[1])
    assert [each["path"] for each in document["tree"]] == ["/", "/a"]
    assert run("dive", BASE, "/none")[0] == 4
