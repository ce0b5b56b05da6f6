"""What differs between layers and environments, and how contents are compared."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.api import contents
from dsec_layers.api.differing import Change, compared, diff
from dsec_layers.api.filedata import FileData, How, Place, Verdict
from dsec_layers.api.opened import composition, opened
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model import merge
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.packed import pack_files
from tests.support.profiles import fewest
from tests.support.trees import trees

ONE, TWO, TOOL = map(Reference.parse, ("base/one:1", "base/two:1", "toolkit/t:1"))
LARGE = random.Random(1).randbytes(3_000_000)

whole = trees(changes=False).map(lambda drawn: drawn[0])


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(
        made,
        ONE,
        {
            "same": b"same",
            "next": b"1",
            "size": b"short",
            "large": LARGE,
            "hole": bytes(9000) + b"x",
            "old": b"old",
            "turned/x": b"x",
        },
    )
    pack_files(
        made,
        TWO,
        {
            "same": b"same",
            "next": b"2",
            "size": b"longer",
            "large": LARGE[:1_000_000] + b"!" + LARGE[1_000_001:],
            "hole": bytes(9000) + b"x",
            "new": b"new",
            "turned": b"x",
        },
    )
    pack_files(made, TOOL, {"same": b"same", "tool": b"t"}, base=made.resolve(ONE))
    return made


def how(change: Change) -> list[How | None]:
    return [detail.how for detail in change.details if detail.field == "content"]


def test_two_bases(bench: Workbench) -> None:
    found = diff(bench, ONE, TWO)
    changes = {change.path: change for change in found.changes}
    assert {path: change.status for path, change in changes.items()} == {
        "/large": "M",
        "/new": "A",
        "/next": "M",
        "/old": "D",
        "/size": "M",
        "/turned": "T",
        "/turned/x": "D",
    }
    assert how(changes["/size"]) == [How.SIZE]
    assert how(changes["/next"]) == [How.READ]
    assert how(changes["/large"]) == [How.CHUNKS]
    assert found.summary.read == 2, "same and next lie in groups that differ"
    assert (changes["/turned"].type_before, changes["/turned"].type_after) == ("directory", "file")
    assert (found.summary.added, found.summary.removed) == (1, 2)


def test_equal_layers_differ_in_nothing(bench: Workbench) -> None:
    assert diff(bench, ONE, ONE).changes == ()
    assert [change.path for change in diff(bench, ONE, TOOL).changes] == ["/tool"]


def test_no_data_is_read_where_metadata_tells(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "read_chunk", lambda *_: pytest.fail("data was read"))
    assert diff(bench, ONE, ONE, times=True).changes == ()
    found = {change.path: how(change) for change in diff(bench, ONE, TWO, read=False).changes}
    assert found["/same"] == [How.UNREAD]
    assert found["/large"] == [How.CHUNKS]


def test_a_whole_chunk_and_a_part_of_one_may_be_equal(bench: Workbench) -> None:
    alone, grouped = Reference.parse("base/alone:1"), Reference.parse("base/grouped:1")
    pack_files(bench, alone, {"file": b"x" * 4096})
    pack_files(bench, grouped, {"file": b"x" * 4096, "next": b"x"})
    for before, after in ((alone, grouped), (grouped, alone)):
        found = diff(bench, before, after)
        assert [change.path for change in found.changes] == ["/next"]
        assert found.summary.read == 1


def test_missing_data_is_an_error_not_a_difference(bench: Workbench) -> None:
    (layer,) = bench.stack(TWO).layers
    for pack in layer.manifest.packs:
        bench.local.delete(pack)
    with pytest.raises(NotFoundError):
        diff(bench, ONE, TWO)
    assert diff(bench, ONE, TWO, read=False).changes


def test_parts_of_files(bench: Workbench) -> None:
    with opened(bench, bench.stack(ONE).layers) as (layer,):
        data = FileData()
        for path, whole_file in ((b"large", LARGE), (b"hole", bytes(9000) + b"x")):
            place = Place(layer, layer.image.stat(path))
            assert b"".join(data.stream(place)) == whole_file
            for offset, length in ((0, 4096), (8000, 2000), (2_999_990, 50), (100, 0)):
                part = data.read(place, offset, length)
                assert part == whole_file[offset : offset + length]


FIELDS: list[tuple[str, dict[str, object]]] = [
    ("mode", {"mode": 0o600}),
    ("owner", {"uid": 7}),
    ("owner", {"gid": 7}),
    ("size", {"size": 7}),
    ("xattr user.a", {"xattrs": ((b"user.a", b"y"),)}),
]


@pytest.mark.parametrize(("field", "values"), FIELDS)
def test_every_field(field: str, values: dict[str, object]) -> None:
    before = Entry(path=b"f", kind=EntryKind.FILE, mode=0o644, xattrs=((b"user.a", b"x"),))
    left = composition([Tree.of([before])])
    right = composition([Tree.of([replace(before, **values)])])
    equal = Verdict(True, How.CHUNKS)
    (change,) = compared(left, right, lambda _: equal)
    assert [detail.field for detail in change.details] == [field]


def test_times_count_only_when_asked_for() -> None:
    before = Entry(path=b"l", kind=EntryKind.SYMLINK, target=b"a", mtime_ns=-1)
    left = composition([Tree.of([before])])
    right = composition([Tree.of([replace(before, mtime_ns=1)])])
    equal = Verdict(True, How.CHUNKS)
    assert list(compared(left, right, lambda _: equal)) == []
    (change,) = compared(left, right, lambda _: equal, times=True)
    (detail,) = change.details
    assert (detail.before, detail.after) == ("-0.000000001", "0.000000001")


@fewest
@given(whole, whole)
def test_it_turns_around(one: Tree, two: Tree) -> None:
    """What is added one way is removed the other way; nothing but equal trees has no changes."""
    left, right = composition([one]), composition([two])

    def compare(path: bytes) -> Verdict:
        equal = left[path].entry.digest == right[path].entry.digest
        return Verdict(equal, How.READ)

    there = list(compared(left, right, compare, times=True))
    back = list(compared(right, left, compare, times=True))
    turned = {"A": "D", "D": "A", "M": "M", "T": "T"}
    assert [(each.path, turned[each.status]) for each in there] == [
        (each.path, each.status) for each in back
    ]
    lone = [[replace(entry, link_group=0) for entry in tree] for tree in (one, two)]
    assert (there == []) == (lone[0] == lone[1])


@fewest
@given(whole, trees().map(lambda drawn: drawn[0]))
def test_a_composition_is_what_is_mounted(lower: Tree, upper: Tree) -> None:
    shown = composition([lower, upper])
    assert Tree.of(given.entry for given in shown.values()) == merge.apply(lower, upper)
    own = {entry.path for entry in upper if entry.kind is not EntryKind.WHITEOUT}
    assert {path for path, given in shown.items() if given.layer == 1} == own
