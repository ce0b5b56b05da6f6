"""Which changes of a sandbox a toolkit above the workspace hides."""

import pytest

from dsec_layers.api.checks.part import Part
from dsec_layers.api.shadowing import shadowed
from dsec_layers.model.tree import Entry, EntryKind, Tree

FOLDER = Entry(path=b"opt", kind=EntryKind.DIRECTORY, mode=0o755)


def file(path: str) -> Entry:
    return Entry(path=path.encode(), kind=EntryKind.FILE)


def part(name: str, *entries: Entry) -> tuple[str, Part]:
    return name, Part(name, name, lambda: Tree.of(entries))


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ((FOLDER, file("opt/new")), (FOLDER, file("opt/tool")), []),
        ((FOLDER, file("opt/tool")), (FOLDER, file("opt/tool")), ["/opt/tool"]),
        ((Entry(path=b"opt", kind=EntryKind.WHITEOUT),), (FOLDER,), ["/opt"]),
        ((Entry(path=b"x", kind=EntryKind.WHITEOUT),), (FOLDER,), []),
        (
            (Entry(path=b"x", kind=EntryKind.WHITEOUT),),
            (Entry(path=b"x", kind=EntryKind.WHITEOUT),),
            [],
        ),
        ((file("x"),), (Entry(path=b"x", kind=EntryKind.WHITEOUT),), ["/x"]),
        (
            (Entry(path=b"opt", kind=EntryKind.DIRECTORY, mode=0o755, opaque=True),),
            (FOLDER,),
            ["/opt"],
        ),
        ((Entry(path=b"opt", kind=EntryKind.DIRECTORY, mode=0o700),), (FOLDER,), ["/opt"]),
        ((FOLDER,), (file("opt"),), ["/opt"]),
    ],
)
def test_one_toolkit(mine: tuple[Entry, ...], theirs: tuple[Entry, ...], told: list[str]) -> None:
    assert [each.path for each in shadowed(Tree.of(mine), [part("t", *theirs)])] == told


def test_the_topmost_is_named() -> None:
    toolkits = [part("one", file("x")), part("two", file("x")), part("three", file("y"))]
    (found,) = shadowed(Tree.of([file("x")]), toolkits)
    assert found.toolkit == "two"
