"""Compositions of real layers, checked before they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.api import checking, composing, contents
from dsec_layers.api.checking import Report
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.reference import Reference
from tests.support.elves import make_elf
from tests.support.packed import pack_files

THEN, NOW, MORE, WORK, TOOL, ENV = map(
    Reference.parse,
    ("base/then:1", "base/now:1", "base/more:1", "workspace/w:1", "toolkit/t:1", "env/e:1"),
)
COMMON = {"bin/sh": b"sh", "etc/passwd": b"root:x:0:0\n", "etc/conf": b"kept"}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, THEN, {**COMMON, "lib/ld.so": b"ld", "etc/version": b"1"})
    pack_files(made, NOW, {**COMMON, "lib/other.so": b"ld", "etc/version": b"two"})
    pack_files(made, MORE, {**COMMON, "more": b"more"}, base=made.resolve(THEN))
    work = {"etc/version": b"mine", "etc/conf": b"mine too", "app.so": make_elf(b"/lib/ld.so", [])}
    pack_files(made, WORK, work, base=made.resolve(THEN))
    pack_files(made, TOOL, {"etc/conf": b"a tool's"}, base=made.resolve(WORK))
    return made


def rows(report: Report) -> list[tuple[str, str, str | None]]:
    return [(each.severity.value, each.rule, each.path) for each in report.findings]


def test_where_all_was_built(bench: Workbench) -> None:
    report = composing.check(bench, [TOOL, WORK, THEN], deep=True)
    assert (report.errors, report.warnings) == (0, 0)
    assert report.layers == ("base/then:1", "workspace/w:1", "toolkit/t:1")
    assert rows(report) == [
        ("info", "overwritten", "/etc/conf"),
        ("info", "overwritten", "/etc/conf"),
        ("info", "overwritten", "/etc/version"),
    ]


def test_on_another_base(bench: Workbench) -> None:
    report = composing.check(bench, [NOW, WORK])
    assert rows(report) == [
        ("warning", "base", None),
        ("warning", "outdated", "/etc/version"),
        ("info", "outdated", "/etc/conf"),
    ], "equal in both bases, but in chunks that differ"
    (stranger,) = (each for each in report.findings if each.rule == "base")
    assert stranger.message.startswith("was built on base/then")
    assert stranger.message.endswith("not on base/now:1")
    deep = composing.check(bench, [NOW, WORK], deep=True)
    assert rows(deep) == [
        ("error", "interpreter", "/app.so"),
        ("warning", "base", None),
        ("warning", "outdated", "/etc/version"),
        ("info", "overwritten", "/etc/conf"),
    ]
    assert (deep.errors, deep.warnings, deep.infos) == (1, 2, 1)


def test_a_base_with_all_that_the_other_has(bench: Workbench) -> None:
    assert "base" not in {rule for _, rule, _ in rows(composing.check(bench, [MORE, WORK]))}


def test_a_base_that_is_not_here(bench: Workbench) -> None:
    bench.local.delete(bench.resolve(THEN))
    report = composing.check(bench, [NOW, WORK])
    assert rows(report) == [
        ("info", "base", None),
        ("info", "outdated", "/etc/conf"),
        ("info", "outdated", "/etc/version"),
    ]
    with pytest.raises(NotFoundError):
        composing.check(bench, [THEN, WORK])


def test_metadata_is_all_that_is_read(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "read_chunk", lambda *_: pytest.fail("data was read"))
    for reference in (THEN, NOW, WORK):
        for pack in bench.layer(bench.resolve(reference)).manifest.packs:
            bench.local.delete(pack)
    assert composing.check(bench, [NOW, WORK]).warnings == 2
    with pytest.raises(pytest.fail.Exception):
        composing.check(bench, [NOW, WORK], deep=True)


def test_compose_reports_before_it_writes(bench: Workbench) -> None:
    def refuse(report: Report) -> None:
        raise InvalidInputError(f"{report.warnings} warnings")

    with pytest.raises(InvalidInputError, match="2 warnings"):
        composing.compose(bench, [NOW, WORK], ENV, on_report=refuse)
    with pytest.raises(NotFoundError):
        bench.resolve(ENV)
    reports: list[Report] = []
    composing.compose(bench, [NOW, WORK], ENV, on_report=reports.append)
    assert reports == [composing.check(bench, [NOW, WORK])]
    assert bench.resolve(ENV)


def test_who_does_not_ask_does_not_wait(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "opened", lambda *_: pytest.fail("metadata was read"))
    composing.compose(bench, [NOW, WORK], ENV)


@pytest.mark.parametrize("parts", [[WORK], [THEN, NOW], [THEN, ENV]])
def test_what_is_no_environment_is_not_checked(bench: Workbench, parts: list[Reference]) -> None:
    composing.compose(bench, [THEN], ENV)
    with pytest.raises(InvalidInputError):
        composing.check(bench, parts)


def test_another_libc_and_another_python(bench: Workbench) -> None:
    base = {
        "usr/lib/python3.11/os.py": b"1",
        "lib/libc.so.6": make_elf(b"", [], has=[b"GLIBC_2.34"]),
    }
    pack_files(bench, THEN, base)
    old = {"usr/lib/python3.9/os.py": b"1", "lib/libc.so.6": make_elf(b"", [], has=[b"GLIBC_2.9"])}
    pack_files(bench, NOW, old)
    work = {
        "v/lib/python3.11/site-packages/a.py": b"1",
        "app.so": make_elf(b"", [b"libc.so.6"], wants={b"libc.so.6": [b"GLIBC_2.34"]}),
    }
    pack_files(bench, WORK, work, base=bench.resolve(THEN))
    report = composing.check(bench, [NOW, WORK], deep=True)
    assert rows(report)[:2] == [
        ("error", "symbols", "/app.so"),
        ("error", "python", "/v/lib/python3.11/site-packages"),
    ]
    assert composing.check(bench, [THEN, WORK], deep=True).errors == 0
    pack_files(bench, NOW, {"lib/ld-musl-x86_64.so.1": b"musl"})
    report = composing.check(bench, [NOW, WORK])
    assert ("error", "libc", "/app.so") in rows(report)
