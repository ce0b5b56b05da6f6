"""The settings of an edge: its file, the command line over it, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.settings import FILE, PARTS, Given, configured
from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.spec import MIB

DOCS = Path(__file__).resolve().parents[4] / "docs/edge.md"
NOTHING: Given = {"edge": {"drain_s": None}, "fncall": {"total": None}, "lifetime": {}}


def written(home: Path, text: str) -> Path:
    (home / "edge").mkdir()
    (home / FILE).write_text(text)
    return home


def test_without_a_file_all_is_as_usual(tmp_path: Path) -> None:
    found = configured(tmp_path, NOTHING, tcp=None, stores=["dir:///x"])
    assert found == EdgeConfig(home=tmp_path, stores=("dir:///x",))


def test_options_go_before_the_file(tmp_path: Path) -> None:
    text = """
    [edge]
    max_sandboxes = 7
    drain_s = 1
    [fncall]
    total = 3
    spare = 0
    memory_bytes = 67108864
    [container]
    runtime = "runc"
    [network]
    range = "10.9.0.0/16"
    resolv_conf = "/run/resolv.conf"
    [lifetime]
    idle_s = 60
    """
    given: Given = {"edge": {"max_sandboxes": 9, "drain_s": None}, "fncall": {"total": 5}}
    found = configured(written(tmp_path, text), given, tcp=None, stores=())
    assert (found.max_sandboxes, found.drain_s) == (9, 1.0)
    assert (found.fncall.total, found.fncall.spare) == (5, 0)
    assert found.fncall.memory_bytes == 64 * MIB
    assert found.container.runtime == "runc"
    assert found.network.resolv_conf == Path("/run/resolv.conf")
    assert found.lifetime.idle_s == 60.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fncall]\ntotla = 3", "totla"),
        ("[fncall]\ntotal = 0", "fncall.total"),
        ("[edge]\nmax_pressure = 101", "max_pressure"),
        ('[edge]\nhome = "/"', "home is not set here"),
        ("[other]\nx = 1", "other is not set here"),
        ("max_sandboxes = 3", "max_sandboxes stands in no table"),
        ("[edge", "edge/settings.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        configured(written(tmp_path, text), NOTHING, tcp=None, stores=())


def test_all_that_can_be_set_is_described() -> None:
    described = DOCS.read_text()
    usual = EdgeConfig(home=Path("/"))
    own = {
        name for name in usual.__struct_fields__ if name not in ("home", "tcp", "stores", *PARTS)
    }
    names = own | {it for part in PARTS for it in getattr(usual, part).__struct_fields__}
    assert [name for name in sorted(names) if f"`{name}`" not in described] == []
