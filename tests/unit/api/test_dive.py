"""What layers cost, and what of them nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from dsec_layers.api import composing, contents, dive, importing
from dsec_layers.api.opened import composition
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Tree
from tests.support.packed import pack_files
from tests.support.profiles import fewest
from tests.support.trees import trees

BASE, WORK, TOOL, ENV = map(
    Reference.parse, ("base/b:1", "workspace/w:1", "toolkit/t:1", "env/e:1")
)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"etc/conf": b"1" * 1000, "lib/big": b"b" * 9000, "etc/x": b""})
    base = made.resolve(BASE)
    pack_files(made, WORK, {"etc/conf": b"2" * 500, "app/main": b"m" * 4000}, base=base)
    pack_files(made, TOOL, {"etc/conf": b"3" * 100, "lib/tool": b"t" * 400}, base=base)
    composing.compose(made, [BASE, WORK, TOOL], ENV)
    return made


def test_an_environment(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "read_chunk", lambda *_: pytest.fail("data was read"))
    found = dive.dive(bench, ENV)
    rows = [(each.added, each.changed, each.removed) for each in found.layers]
    assert rows == [(6, 0, 0), (2, 1, 0), (1, 1, 0)], "the root counts once"
    assert [each.size_bytes for each in found.layers] == [10_000, 4500, 500]
    assert [each.wasted_bytes for each in found.layers] == [1000, 500, 0]
    assert (found.size_bytes, found.wasted_bytes, found.efficiency) == (15_000, 1500, 900)
    (wasted,) = found.wasted
    assert (wasted.path, wasted.copies, wasted.bytes) == ("/etc/conf", 2, 1500)
    tree = [(each.path, each.depth, each.size_bytes, each.layer) for each in found.tree]
    assert tree == [
        ("/", 0, 13_500, 0),
        ("/lib", 1, 9400, 0),
        ("/app", 1, 4000, 1),
        ("/etc", 1, 100, 2),
    ]


def test_a_part_of_the_tree(bench: Workbench) -> None:
    found = dive.dive(bench, ENV, "/lib", depth=9, worst=0)
    assert [(each.path, each.layer) for each in found.tree] == [
        ("/lib", 0),
        ("/lib/big", 0),
        ("/lib/tool", 2),
    ]
    assert found.wasted == ()
    assert [each.path for each in dive.dive(bench, ENV, "etc/conf").tree] == ["/etc/conf"]
    with pytest.raises(NotFoundError):
        dive.dive(bench, ENV, "/none")


def test_an_empty_layer_wastes_nothing(tmp_path: Path) -> None:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"empty": b""})
    found = dive.dive(made, BASE)
    assert (found.efficiency, found.size_bytes, found.wasted) == (1000, 0, ())


def test_a_file_with_two_names(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "one").write_bytes(b"12345")
    (root / "two").hardlink_to(root / "one")
    made = Workbench(tmp_path / "home")
    importing.import_(made, str(root), BASE)
    pack_files(made, TOOL, {"one": b"x"}, base=made.resolve(BASE))
    found = dive.dive(made, TOOL)
    assert (found.size_bytes, found.wasted_bytes) == (6, 0), "its other name is still seen"
    pack_files(made, TOOL, {"one": b"x", "two": b"y"}, base=made.resolve(BASE))
    found = dive.dive(made, TOOL)
    assert (found.size_bytes, found.wasted_bytes) == (7, 5)


@fewest
@given(trees(changes=False), trees())
def test_what_is_seen_and_what_is_hidden_is_all(
    lower: tuple[Tree, object], upper: tuple[Tree, object]
) -> None:
    stack = [lower[0], upper[0]]
    shown = composition(stack)
    for number, tree in enumerate(stack):
        weights = dive._weigh(number, tree, shown)
        groups = {entry.link_group or entry.path: entry.size for entry in tree}
        assert sum(weights.seen.values()) + sum(weights.hidden.values()) == sum(groups.values())
        assert not weights.seen.keys() & weights.hidden.keys()
    changes = list(dive._changes(stack))
    assert changes[0].added - changes[0].removed == len(stack[0])
    total = sum(each.added - each.removed for each in changes)
    assert total == len(shown)
