"""The rules about compositions, over trees: what they find, and that they find nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.api.checks import (
    hidden,
    interpreters,
    libraries,
    links,
    outdated,
    overwritten,
    owners,
    strangers,
    types,
)
from dsec_layers.api.checks.deep import DeepCase
from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Part
from dsec_layers.api.opened import composition
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.elves import make_elf
from tests.support.profiles import fewest
from tests.support.trees import trees

Found = list[tuple[str, str]]
INFO, WARNING, ERROR = (each.value for each in (Severity.INFO, Severity.WARNING, Severity.ERROR))

whole = trees(changes=False).map(lambda drawn: drawn[0])
diffs = trees().map(lambda drawn: drawn[0])


def folder(path: bytes, *, opaque: bool = False) -> Entry:
    return Entry(path=path, kind=EntryKind.DIRECTORY, mode=0o755, opaque=opaque)


def file(path: bytes, content: bytes = b"", mode: int = 0o644, owner: int = 0) -> Entry:
    return Entry(
        path=path,
        kind=EntryKind.FILE,
        mode=mode,
        size=len(content),
        digest=content,
        uid=owner,
        gid=owner,
    )


def link(path: bytes, target: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.SYMLINK, target=target)


def gone(path: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.WHITEOUT)


def part(name: str, *entries: Entry, on: tuple[Part, ...] | None = ()) -> Part:
    """A part with the directories that the entries lack; its digest is its name."""
    known = {entry.path for entry in entries}
    parents = {
        entry.path[:at]
        for entry in entries
        for at in range(1, len(entry.path))
        if entry.path[at : at + 1] == b"/"
    }
    tree = Tree.of([*entries, *(folder(path) for path in parents - known)])
    return Part(name, name, lambda: tree, on)


def whole_part(name: str, tree: Tree, on: tuple[Part, ...] = ()) -> Part:
    return Part(name, name, lambda: tree, on)


def same(one: Part, other: Part, path: bytes) -> bool | None:
    """Contents stand in the place of digests; `?` is one that metadata does not tell."""
    digests = (one.by_path[path].digest, other.by_path[path].digest)
    return None if b"?" in digests else digests[0] == digests[1]


def found(rule: Callable[[Case], Iterator[Finding]], *parts: Part) -> Found:
    findings = list(rule(Case(parts, same)))
    assert all(each.layer in [part.name for part in parts] for each in findings)
    return [(each.severity.value, each.path or each.layer) for each in findings]


def test_a_file_in_two_layers() -> None:
    base = part("base", file(b"a", b"1"), file(b"b", b"1"), file(b"only", b"1"))
    one = part("one", file(b"a", b"1"), file(b"b", b"2"), file(b"c", b"1"), on=(base,))
    two = part("two", file(b"c", b"2"), file(b"b", b"?"), file(b"d", b"2"), on=(base,))
    over_one = part("three", file(b"c", b"3"), on=(base, one))
    assert found(overwritten.check, base, one) == [(INFO, "/a"), (INFO, "/b")]
    assert found(overwritten.check, base, one, two)[2:] == [(INFO, "/b"), (WARNING, "/c")]
    assert found(overwritten.check, base, one, over_one)[2:] == [(INFO, "/c")]
    mode = part("mode", file(b"c", b"1", mode=0o600), on=(base,))
    assert found(overwritten.check, base, one, mode)[2:] == [(WARNING, "/c")]


def test_what_a_hidden_directory_has_is_not_overwritten() -> None:
    base = part("base")
    one = part("one", file(b"d/x", b"1"), file(b"e/x", b"1"), on=(base,))
    empties = part("two", folder(b"d", opaque=True), gone(b"e"), on=(base, one))
    three = part("three", file(b"d/x", b"2"), file(b"e/x", b"2"), on=(base,))
    assert found(overwritten.check, base, one, empties, three) == []
    assert found(overwritten.check, base, one, three) == [(WARNING, "/d/x"), (WARNING, "/e/x")]


def test_a_base_that_has_changed() -> None:
    then = part("then", file(b"kept", b"1"), file(b"changed", b"1"), file(b"taken", b"1"))
    now = part("now", file(b"kept", b"1"), file(b"changed", b"2"), file(b"new", b"2"))
    names = (b"kept", b"changed", b"taken", b"new")
    upper = part("upper", *(file(name, b"3") for name in names), on=(then,))
    assert found(outdated.check, now, upper) == [(WARNING, "/changed"), (WARNING, "/new")]
    assert found(overwritten.check, now, upper) == [(INFO, "/kept")]
    assert found(outdated.check, then, upper) == []
    removes = part("removes", gone(b"changed"), gone(b"kept"), on=(then,))
    assert found(outdated.check, now, removes) == [(WARNING, "/changed")]
    copies = part("copies", file(b"changed", b"2"), on=(then,))
    assert found(outdated.check, now, copies) == []
    unknown = part("unknown", file(b"changed", b"3"), on=None)
    assert found(outdated.check, now, unknown) == [(INFO, "/changed")]


def test_a_directory_that_was_made_anew_hides_changes_too() -> None:
    then, now = part("then", file(b"d/x", b"1")), part("now", file(b"d/x", b"2"))
    upper = part("upper", folder(b"d", opaque=True), file(b"d/x", b"3"), on=(then,))
    assert found(outdated.check, now, upper) == [(WARNING, "/d/x")]


def test_types() -> None:
    base = part("base", link(b"lib", b"usr/lib"), folder(b"d"), file(b"f", b"1"), file(b"g"))
    other = part("other", file(b"f", b"1"), file(b"d"), folder(b"lib"))
    upper = [file(b"lib/x"), link(b"d", b"f"), link(b"f", b"d"), file(b"g"), gone(b"other")]
    assert found(types.check, base, part("upper", *upper, on=(base,))) == [
        (INFO, "/d"),
        (INFO, "/f"),
        (INFO, "/lib"),
    ]
    assert found(types.check, base, part("upper", *upper, on=(other,))) == [
        (ERROR, "/d"),
        (INFO, "/f"),
        (ERROR, "/lib"),
    ]
    assert found(types.check, base, part("upper", *upper, on=None))[1] == (WARNING, "/f")


def test_what_is_hidden() -> None:
    base = part("base", file(b"a"), file(b"d/x"), folder(b"e"))
    one = part("one", file(b"b"), on=(base,))
    upper = [gone(b"a"), gone(b"b"), gone(b"none"), folder(b"d", opaque=True), folder(b"e")]
    assert found(hidden.check, base, one, part("upper", *upper, on=(base,))) == [
        (INFO, "/a"),
        (WARNING, "/b"),
        (INFO, "/d"),
    ]


def test_links() -> None:
    base = part("base", file(b"usr/bin/tool"), link(b"bin", b"usr/bin"), link(b"own", b"no"))
    other = part("other", file(b"usr/bin/other"))
    upper = [
        *(link(b"good", b"/bin/tool"), link(b"lost", b"/usr/bin/other"), link(b"bad", b"no")),
        *(link(b"later", b"/proc/self"), link(b"x/later", b"../run/x"), link(b"loop", b"loop")),
    ]
    assert found(links.check, base, part("upper", *upper, on=(other,))) == [
        (INFO, "/bad"),
        (INFO, "/loop"),
        (ERROR, "/lost"),
    ]
    stray = part("upper", link(b"lost", b"/no"), on=None)
    assert found(links.check, base, stray) == [(WARNING, "/lost")]
    assert found(links.check, base, stray, part("top", gone(b"lost"), on=(base,))) == []


def test_strangers() -> None:
    then, now = part("then"), part("now")
    made_of_it = Part("more", "more", lambda: Tree.of([]), (), frozenset({"then"}))
    upper, lost = part("upper", on=(then,)), part("lost", on=None)
    assert found(strangers.check, then, upper) == []
    assert found(strangers.check, now, upper, lost) == [(WARNING, "upper"), (INFO, "lost")]
    assert found(strangers.check, made_of_it, upper) == []


def deep(parts: Sequence[Part], contents: Mapping[bytes, bytes]) -> DeepCase:
    def read(_part: Part, entry: Entry, offset: int, length: int) -> bytes:
        return contents[entry.path][offset : offset + length]

    return DeepCase(Case(parts, same), read, [b"/usr/bin"])


def severities(findings: Iterator[Finding]) -> Found:
    return [(each.severity.value, each.path or "") for each in findings]


def test_programs() -> None:
    run = 0o755
    contents = {
        b"lost": b"#!/usr/bin/python3.11 -I\n",
        b"fine": b"#! /usr/bin/env -S A=1 sh -x\n",
        b"never": b"#!/no/such\n",
        b"named": b"#!/usr/bin/env python3.11",
        b"text": b"text",
        b"ld": make_elf(b"/lib/ld.so", [b"libc.so.6", b"liblost.so", b"libnever.so"]),
        b"lib.so.1": make_elf(b"", [b"libc.so.6"]),
    }
    common = [file(b"usr/bin/env", b"1"), file(b"usr/bin/sh", b"1"), file(b"lib/libc.so.6", b"1")]
    now = part("now", *common)
    older = [file(b"usr/bin/python3.11"), file(b"lib/ld.so"), file(b"opt/liblost.so")]
    then = part("then", *common, *older)
    programs = [file(path, data, run) for path, data in contents.items()]
    upper = part("upper", *programs, on=(then,))
    assert severities(interpreters.check(deep((now, upper), contents))) == [
        (ERROR, "/ld"),
        (ERROR, "/lost"),
        (ERROR, "/named"),
        (INFO, "/never"),
    ]
    lost = list(libraries.check(deep((now, upper), contents)))
    assert [(each.severity.value, each.message.split()[3]) for each in lost] == [
        (ERROR, "liblost.so,"),
        (INFO, "libnever.so,"),
    ]
    stray = part("upper", *programs, on=None)
    assert {each.severity for each in interpreters.check(deep((now, stray), contents))} == {
        Severity.WARNING
    }
    none = part("top", *(gone(path) for path in contents), on=(now,))
    assert deep((now, upper, none), contents).programs == ()


def test_only_what_may_run_is_read() -> None:
    base = part("base", file(b"base", b"#!", 0o755))
    upper = part("upper", file(b"data", b"#!"), link(b"l.so", b"data"), file(b"empty", b"", 0o755))
    assert deep((base, upper), {}).programs == ()


def test_owners() -> None:
    contents = {b"etc/passwd": b"root:x:0:0::/:\nme:x:7:7\nbad\nodd:x:no:1\n", b"etc/group": b""}
    base = part("base", *(file(path, data) for path, data in contents.items()))
    upper = part("upper", file(b"a", owner=7), file(b"b", owner=8), file(b"c", owner=8), on=(base,))
    findings = list(owners.check(deep((base, upper), contents)))
    assert [(each.path, each.message.split(",")[0]) for each in findings] == [
        ("/b", "belongs to the user 8"),
        ("/a", "belongs to the group 7"),
        ("/b", "belongs to the group 8"),
    ]
    bare = part("bare")
    users = [each for each in owners.check(deep((bare, upper), {})) if "user" in each.message]
    assert [each.path for each in users] == ["/a", "/b"]


@fewest
@given(whole, st.lists(diffs, min_size=1, max_size=3))
def test_overlaps_are_what_a_mount_without_the_layer_shows(base: Tree, uppers: list[Tree]) -> None:
    stack = [base, *uppers]
    parts = [whole_part(str(number), tree) for number, tree in enumerate(stack)]
    overlaps = Case(parts, same).overlaps
    for number in range(1, len(stack)):
        below = composition(stack[:number])
        met = {o.entry.path: o for o in overlaps if o.upper is parts[number]}
        for path, overlap in met.items():
            shown = below[path]
            assert overlap.below.kind is shown.entry.kind
            assert overlap.lower is parts[shown.layer]
        assert met.keys() == {e.path for e in stack[number] if e.path and e.path in below}


@fewest
@given(whole, diffs)
def test_a_layer_over_its_own_base_alarms_nobody(base: Tree, upper: Tree) -> None:
    """Whatever it changes was meant."""
    below = whole_part("base", base)
    case = Case([below, whole_part("upper", upper, (below,))], same)
    rules = (strangers, overwritten, outdated, types, hidden, links)
    findings = [each for rule in rules for each in rule.check(case)]
    assert {each.severity for each in findings} <= {Severity.INFO}


@pytest.mark.parametrize("rule", [strangers, overwritten, outdated, types, hidden, links])
def test_a_base_alone_is_not_looked_at(rule: object) -> None:
    base = Part("base", "base", lambda: pytest.fail("its tree was read"))
    check: Callable[[Case], Iterator[Finding]] = rule.check  # type: ignore[attr-defined]
    assert list(check(Case([base], same))) == []
