"""Which layer gives a path, and which hides it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.api.opened import composition
from dsec_layers.api.why import Says, explain, why
from dsec_layers.api.workbench import Workbench
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import write
from tests.support.packed import pack_files
from tests.support.profiles import fewest
from tests.support.trees import trees

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")


def folder(path: bytes, *, opaque: bool = False) -> Entry:
    return Entry(path=path, kind=EntryKind.DIRECTORY, mode=0o755, opaque=opaque)


def file(path: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.FILE, mode=0o644)


def gone(path: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.WHITEOUT)


LAYERS = [
    [folder(b"d"), file(b"d/f"), folder(b"d/s"), file(b"d/s/x"), file(b"e")],
    [folder(b"d"), gone(b"d/f"), folder(b"d/s", opaque=True), folder(b"e"), file(b"e/y")],
    [folder(b"d"), file(b"d/f"), gone(b"e")],
    [file(b"d")],
]
G, R, E, P, N = Says.GIVES, Says.REMOVES, Says.EMPTIES, Says.REPLACES, Says.NOTHING


@pytest.mark.parametrize(
    ("count", "path", "says", "winner", "hidden"),
    [
        (1, b"d/f", [G], 0, {}),
        (2, b"d/f", [G, R], None, {0: 1}),
        (3, b"d/f", [G, R, G], 2, {0: 2}),
        (4, b"d/f", [G, R, G, P], None, {0: 3, 2: 3}),
        (2, b"d/s/x", [G, E], None, {0: 1}),
        (2, b"d/s", [G, G], 1, {0: 1}),
        (3, b"d", [G, G, G], 2, {}),
        (2, b"e", [G, G], 1, {0: 1}),
        (2, b"e/y", [P, G], 1, {}),
        (3, b"e/y", [P, G, R], None, {1: 2}),
        (3, b"x/y", [N, N, N], None, {}),
        (4, b"", [G, G, G, G], 3, {}),
    ],
)
def test_every_way_to_hide(
    count: int, path: bytes, says: list[Says], winner: int | None, hidden: dict[int, int]
) -> None:
    images = [ErofsImage(write(Tree.of(entries))) for entries in LAYERS[:count]]
    judged = explain(images, path)
    assert [each.saying.says for each in judged] == says
    assert [number for number, each in enumerate(judged) if each.wins] == (
        [] if winner is None else [winner]
    )
    assert {
        number: each.hidden_by for number, each in enumerate(judged) if each.hidden_by is not None
    } == hidden
    assert {(by, number) for by, each in enumerate(judged) for number in each.hides} == {
        (by, number) for number, by in hidden.items()
    }


@fewest
@given(st.lists(trees().map(lambda drawn: drawn[0]), min_size=1, max_size=4))
def test_the_winner_is_what_a_mount_shows(stack: list[Tree]) -> None:
    images = [ErofsImage(write(tree)) for tree in stack]
    shown = composition(stack)
    for path in {entry.path for tree in stack for entry in tree}:
        judged = explain(images, path)
        winners = [number for number, each in enumerate(judged) if each.wins]
        assert winners == ([shown[path].layer] if path in shown else [])
        for each in judged:
            if each.saying.says is Says.GIVES:
                assert [each.wins, each.merges, each.hidden_by is not None].count(True) == 1


def test_of_a_reference(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    pack_files(bench, BASE, {"usr/a": b"below", "usr/b": b"b"})
    pack_files(bench, TOOL, {"usr/a": b"above!"}, base=bench.resolve(BASE))
    found = why(bench, TOOL, "/usr/./a")
    assert (found.path, found.present) == ("/usr/a", True)
    top, bottom = found.layers
    assert top.wins
    assert top.hides == (bottom.layer,)
    assert (top.type, top.size_bytes, top.mode) == ("file", 6, "0644")
    assert bottom.hidden_by == top.layer
    nowhere = why(bench, TOOL, "no/such")
    assert (nowhere.path, nowhere.present) == ("/no/such", False)
    assert {row.says for row in nowhere.layers} == {Says.NOTHING}
    assert why(bench, TOOL, "/").present
