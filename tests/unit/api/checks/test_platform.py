"""Layers over another C library or Python than that they were made for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.api.checks import elf, elfversions, libc, pythons, symbols
from dsec_layers.api.checks.deep import DeepCase
from dsec_layers.api.checks.elfversions import Version
from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Part
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.elves import make_elf

INFO, WARNING, ERROR = (each.value for each in (Severity.INFO, Severity.WARNING, Severity.ERROR))

BOOKWORM = ("usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/python3.11/os.py", "usr/bin/python3.11")
BULLSEYE = (
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/x86_64-linux-gnu/libc-2.31.so",
    "usr/lib/python3.9/os.py",
)
BUSTER = ("lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libc-2.28.so")
ALPINE = ("lib/ld-musl-x86_64.so.1", "usr/lib/libpython3.so", "usr/lib/python3.12/os.py")


def part(
    name: str, *paths: str, on: tuple[Part, ...] | None = (), content: Mapping[str, bytes] = {}
) -> Part:
    """A part of files, those in `bin` executable; its digest is its name."""
    files = {**dict.fromkeys(paths, b"x"), **content}
    entries = [
        Entry(
            path=path.encode(),
            kind=EntryKind.FILE,
            mode=0o755 if "bin/" in path else 0o644,
            size=len(data),
            digest=data,
        )
        for path, data in files.items()
    ]
    parents = {path[: at.start()] for path in files for at in re.finditer("/", path)}
    entries += [Entry(path=path.encode(), kind=EntryKind.DIRECTORY, mode=0o755) for path in parents]
    tree = Tree.of(entries)
    return Part(name, name, lambda: tree, on)


def findings(rule: Callable[[Case], Iterator[Finding]], *parts: Part) -> list[Finding]:
    return list(rule(Case(parts, lambda *_: None)))


def found(rule: Callable[[Case], Iterator[Finding]], *parts: Part) -> list[tuple[str, str | None]]:
    return [(each.severity.value, each.path) for each in findings(rule, *parts)]


def test_another_kind_of_libc() -> None:
    debian, alpine = part("debian", *BOOKWORM), part("alpine", *ALPINE)
    made = part("t", "opt/x/lib/native.so.1", "opt/x/text", on=(debian,))
    (finding,) = findings(libc.check, alpine, made)
    assert (finding.severity, finding.path) == (Severity.ERROR, "/opt/x/lib/native.so.1")
    assert finding.message == "was made for glibc, and alpine has musl"
    assert findings(libc.check, debian, made) == []
    assert found(libc.check, alpine, part("t", "usr/bin/tool", on=(debian,))) == [
        (WARNING, "/usr/bin/tool")
    ]
    assert findings(libc.check, alpine, part("t", "etc/conf", on=(debian,))) == []
    assert findings(libc.check, alpine, part("t", "bin/x", on=None)) == []
    own = part("t", "bin/x.so", "lib/ld-musl-x86_64.so.1", on=(alpine,))
    assert findings(libc.check, debian, own) == [], "it brings its own"


def test_a_name_tells_the_libc_wherever_it_was_built() -> None:
    debian, alpine = part("debian", *BOOKWORM), part("alpine", *ALPINE)
    module = "opt/site/m.cpython-312-x86_64-linux-gnu.so"
    assert found(libc.check, alpine, part("t", module, on=None)) == [(ERROR, "/" + module)]
    assert findings(libc.check, debian, part("t", module, on=None)) == []
    musl = "opt/site/m.cpython-311-x86_64-linux-musl.so"
    assert found(libc.check, debian, part("t", musl, on=None)) == [(ERROR, "/" + musl)]


def test_an_older_glibc() -> None:
    bullseye, buster = part("bullseye", *BULLSEYE), part("buster", *BUSTER)
    made = part("t", "usr/bin/tool", on=(bullseye,))
    (finding,) = findings(libc.check, buster, made)
    assert (finding.severity, finding.path) == (Severity.WARNING, "/usr/bin/tool")
    assert "built over glibc 2.31, and buster has 2.28" in finding.message
    assert findings(libc.check, bullseye, part("t", "usr/bin/tool", on=(buster,))) == []
    assert findings(libc.check, buster, part("t", "doc", on=(bullseye,))) == []
    unknown = part("bookworm", *BOOKWORM)
    assert findings(libc.check, unknown, made) == [], "its version is in no name"


def test_what_a_layer_hides_is_not_offered() -> None:
    base = part("base", *BOOKWORM)
    folders = [
        Entry(path=path, kind=EntryKind.DIRECTORY, mode=0o755) for path in (b"usr", b"usr/lib")
    ]
    gone = Entry(path=b"usr/lib/python3.11", kind=EntryKind.WHITEOUT)
    removes = Part("removes", "removes", lambda: Tree.of([*folders, gone]), (base,))
    modules = part("m", "usr/lib/python3.11/dist-packages/m.py", on=(base,))
    assert found(pythons.check, base, removes, modules)[0][0] == ERROR
    assert findings(pythons.check, base, modules) == []


def test_another_python() -> None:
    bookworm, bullseye = part("bookworm", *BOOKWORM), part("bullseye", *BULLSEYE)
    site = "venv/lib/python3.11/site-packages"
    venv = part("v", "venv/pyvenv.cfg", f"{site}/a.py", f"{site}/b/c.py", on=(bookworm,))
    (finding,) = findings(pythons.check, bullseye, venv)
    assert (finding.severity, finding.path) == (Severity.ERROR, f"/{site}")
    assert finding.message == "is of Python 3.11 (2 files), and there is only 3.9"
    assert findings(pythons.check, bookworm, venv) == []
    lost = part("v", f"{site}/a.py", on=None)
    assert found(pythons.check, bullseye, lost) == [(WARNING, f"/{site}")]
    never = part("v", f"{site}/a.py", on=(bullseye,))
    assert found(pythons.check, bullseye, never) == [(INFO, f"/{site}")]
    own = part("v", f"{site}/a.py", "opt/lib/python3.11/os.py", on=(bookworm,))
    assert findings(pythons.check, bullseye, own) == []
    neutral = part("v", "usr/lib/python3/dist-packages/a.py", on=(bookworm,))
    assert findings(pythons.check, bullseye, neutral) == []
    compiled = "usr/lib/python3/dist-packages/_a.cpython-311-x86_64-linux-gnu.so"
    assert found(pythons.check, bullseye, part("v", compiled, on=(bookworm,))) == [
        (ERROR, "/" + compiled)
    ]
    empty = part("empty", "bin/sh")
    assert findings(pythons.check, empty, venv)[0].message.endswith("there is none")


def deep(*parts: Part) -> list[tuple[str, str, str]]:
    def read(of: Part, entry: Entry, offset: int, length: int) -> bytes:
        return bytes(entry.digest)[offset : offset + length]

    case = DeepCase(Case(parts, lambda *_: None), read, ())
    rows = symbols.check(case)
    return [(each.severity.value, each.path or "", each.message.split()[1]) for each in rows]


def glibc(*versions: bytes) -> dict[str, bytes]:
    has = [b"GLIBC_2.2.5", *versions]
    return {"lib/x86_64-linux-gnu/libc.so.6": make_elf(b"", [], has=has)}


def program(*versions: bytes) -> dict[str, bytes]:
    wants = {b"libc.so.6": versions, b"libm.so.6": [b"GLIBC_2.99"]}
    return {"bin/app": make_elf(b"/lib64/ld.so", [b"libc.so.6"], wants=wants)}


def test_symbols_that_the_libc_is_too_old_for() -> None:
    new = part("new", content=glibc(b"GLIBC_2.9", b"GLIBC_2.34"))
    old = part("old", content=glibc(b"GLIBC_2.9"))
    app = part("app", content=program(b"GLIBC_2.2.5", b"GLIBC_2.9", b"GLIBC_2.34"), on=(new,))
    assert deep(new, app) == [], "there is no libm to complain of"
    assert deep(old, app) == [(ERROR, "/bin/app", "GLIBC_2.34")]
    lost = part("app", content=program(b"GLIBC_2.34"), on=None)
    assert deep(old, lost) == [(ERROR, "/bin/app", "GLIBC_2.34")]
    never = part("app", content=program(b"GLIBC_2.34", b"GLIBC_2.40"), on=(new,))
    assert deep(new, never) == [(INFO, "/bin/app", "GLIBC_2.40")]
    weak = part("app", content=program(b"?GLIBC_2.34"), on=None)
    assert deep(old, weak) == []
    brings = part("lib", content=glibc(b"GLIBC_2.9", b"GLIBC_2.34"), on=None)
    assert deep(old, brings, app) == []
    bare = part("bare", content={"lib/libc.so.6": make_elf(b"", [])})
    assert deep(bare, app) == [], "the loader takes a library without versions"
    broken = part("broken", content={"lib/libc.so.6": b"\x7fELF"})
    assert deep(broken, app) == []


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("wide", [True, False])
def test_versions_in_every_form_of_elf(wide: bool, order: str) -> None:
    wants = {b"liba.so": [b"A_1", b"A_2"], b"libb.so": [b"B_1", b"?B_2"]}
    data = make_elf(b"", [b"liba.so"], wide=wide, order=order, wants=wants, has=[b"C_1", b"C_2"])
    file = elf.dynamic(lambda offset, length: data[offset : offset + length])
    assert file is not None
    a, b = b"liba.so", b"libb.so"
    expected = {Version(a, b"A_1"), Version(a, b"A_2"), Version(b, b"B_1")}
    assert elfversions.needed(file) == expected
    assert elfversions.offered(file) == {b"C_1", b"C_2"}


@given(st.data())
def test_damaged_versions_end_in_nothing_worse(data: st.DataObject) -> None:
    whole = make_elf(b"", [b"a"], wants={b"a": [b"1", b"2"]}, has=[b"3"])
    changed = bytearray(whole[: data.draw(st.integers(64, len(whole)))])
    for _ in range(data.draw(st.integers(0, 8))):
        changed[data.draw(st.integers(64, len(changed) - 1)) if len(changed) > 64 else 0] ^= 0xFF
    file = elf.dynamic(lambda offset, length: bytes(changed[offset : offset + length]))
    if file is not None:
        assert len(elfversions.needed(file)) <= 1024 * 1024
        elfversions.offered(file)


def test_this_python_finds_what_it_needs_in_this_libc() -> None:
    maps = Path("/proc/self/maps").read_text()
    paths = {line.split()[-1] for line in maps.splitlines() if "/libc.so.6" in line}
    if not paths:
        pytest.skip("this Python runs without glibc")
    libc_path = Path(paths.pop())
    library = elf.dynamic(lambda at, size: libc_path.read_bytes()[at : at + size])
    own = Path("/proc/self/exe").read_bytes()
    file = elf.dynamic(lambda at, size: own[at : at + size])
    assert library is not None
    assert file is not None
    wanted = {each.name for each in elfversions.needed(file) if each.library == b"libc.so.6"}
    assert wanted
    assert wanted <= elfversions.offered(library)
