"""Where layers come from, and what they set."""

from __future__ import annotations

from pathlib import Path

from dsec_layers.api import composing
from dsec_layers.api.history import Setting, history, settings
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from tests.support.packed import pack_files

BASE, TOOL, ENV = map(Reference.parse, ("base/b:1", "toolkit/t:1", "env/e:1"))


def test_settings() -> None:
    before = RunConfig(env={"A": "1", "B": "1"}, cmd=("sh",), workdir="/a")
    after = RunConfig(env={"A": "1", "B": "2", "C": "3"}, entrypoint=(), workdir="/a")
    assert settings(before, after) == (
        Setting(name="cmd", before='["sh"]', after=None),
        Setting(name="entrypoint", before=None, after="[]"),
        Setting(name="env.B", before="1", after="2"),
        Setting(name="env.C", before=None, after="3"),
    )
    assert settings(before, before) == ()


def test_history(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    pack_files(bench, BASE, {"b": b"b"}, run=RunConfig(env={"PATH": "/bin"}))
    wish = RunConfig(env={"PATH": "/opt/bin"})
    pack_files(bench, TOOL, {"t": b"tool"}, base=bench.resolve(BASE), run=wish)
    composing.compose(bench, [TOOL, BASE], ENV)
    for reference in (TOOL, ENV):
        base, tool = history(bench, reference)
        assert [base.layer.reference, tool.layer.reference] == ["base/b:1", "toolkit/t:1"]
        assert (base.base, base.base_name) == ("", "")
        assert (tool.base, tool.base_name) == (bench.resolve(BASE).digest, "base/b:1")
        assert tool.source == "build"
        assert tool.layer.content_bytes == 4
        assert base.run == (Setting(name="env.PATH", before=None, after="/bin"),)
        assert tool.run == (Setting(name="env.PATH", before="/bin", after="/opt/bin:/bin"),)
    descriptor = bench.resolve(TOOL)
    bench.local.untag(TOOL)
    nameless = Reference.parse(f"toolkit/x@{descriptor.digest}")
    assert history(bench, nameless)[1].layer.reference == "toolkit/t"
