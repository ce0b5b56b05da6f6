from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.model.content import LocalFile, Source, Spooled
from dsec_layers.model.merge import apply, apply_sources, fold, fold_sources
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.profiles import fewer
from tests.support.trees import trees

DIR, FILE, SYMLINK, WHITE = (
    EntryKind.DIRECTORY,
    EntryKind.FILE,
    EntryKind.SYMLINK,
    EntryKind.WHITEOUT,
)

whole_trees = trees(changes=False).map(lambda drawn: drawn[0])
diffs = trees().map(lambda drawn: drawn[0])


def tree(*entries: Entry) -> Tree:
    """A tree with the parents that the entries lack."""
    known = {entry.path for entry in entries}
    parents = {
        entry.path[:at]
        for entry in entries
        for at in range(1, len(entry.path))
        if entry.path[at : at + 1] == b"/"
    }
    return Tree.of([*entries, *(d(path) for path in parents - known)])


def d(path: bytes, mode: int = 0o755, *, opaque: bool = False) -> Entry:
    return Entry(path=path, kind=DIR, mode=mode, opaque=opaque)


def f(path: bytes, mark: int = 0, group: int = 0) -> Entry:
    return Entry(path=path, kind=FILE, size=mark, link_group=group)


def white(path: bytes) -> Entry:
    return Entry(path=path, kind=WHITE)


def paths(merged: Tree) -> list[bytes]:
    return [entry.path for entry in merged][1:]


def test_upper_entries_are_added_and_win() -> None:
    merged = apply(tree(f(b"a", 1), f(b"b", 1)), tree(f(b"b", 2), f(b"c", 2)))
    assert {entry.path: entry.size for entry in merged if entry.path} == {
        b"a": 1,
        b"b": 2,
        b"c": 2,
    }


def test_a_directory_over_a_directory_gives_it_its_attributes() -> None:
    merged = apply(tree(d(b"d", 0o700), f(b"d/x")), tree(d(b"d", 0o711), f(b"d/y")))
    assert paths(merged) == [b"d", b"d/x", b"d/y"]
    assert merged.by_path()[b"d"].mode == 0o711


def test_the_root_takes_the_attributes_of_the_upper() -> None:
    assert apply(tree(d(b"", 0o700)), tree(d(b"", 0o711))).entries[0].mode == 0o711


def test_a_whiteout_removes_all_below_and_nothing_beside() -> None:
    lower = tree(f(b"a/b/c"), f(b"a-b"), f(b"a.d"), f(b"a0"), f(b"ab"))
    assert paths(apply(lower, tree(white(b"a")))) == [b"a-b", b"a.d", b"a0", b"ab"]


def test_a_whiteout_of_nothing_is_nothing() -> None:
    assert apply(tree(f(b"a")), tree(white(b"b"), white(b"c/d"))) == tree(f(b"a"), d(b"c"))


def test_an_opaque_directory_hides_what_is_below_it() -> None:
    """A layer has `a/b/foo`, the next one makes `a` opaque: `a` is empty."""
    assert paths(apply(tree(f(b"a/b/foo")), tree(d(b"a", opaque=True)))) == [b"a"]


def test_an_opaque_directory_keeps_the_siblings_of_its_own_layer() -> None:
    """`rm -rf a1; mkdir a1; touch a1/new`."""
    merged = apply(tree(f(b"a1/old")), tree(d(b"a1", opaque=True), f(b"a1/new")))
    assert paths(merged) == [b"a1", b"a1/new"]
    assert not merged.by_path()[b"a1"].opaque


def test_an_opaque_root_hides_all() -> None:
    assert paths(apply(tree(f(b"a/b")), tree(d(b"", opaque=True), f(b"c")))) == [b"c"]


def test_any_kind_over_a_directory_removes_its_subtree() -> None:
    lower = tree(f(b"d/e/f"), f(b"d-"))
    for kind in (FILE, SYMLINK, EntryKind.FIFO, EntryKind.CHAR):
        upper = tree(Entry(path=b"d", kind=kind, target=b"x" if kind is SYMLINK else b""))
        assert paths(apply(lower, upper)) == [b"d", b"d-"]


def test_a_directory_over_any_kind_replaces_it() -> None:
    for kind in (FILE, SYMLINK, EntryKind.FIFO, EntryKind.CHAR):
        lower = tree(Entry(path=b"d", kind=kind))
        assert apply(lower, tree(f(b"d/x"))) == tree(f(b"d/x"))


def test_folding_a_directory_over_what_is_no_directory_makes_it_opaque() -> None:
    """The lower diff already hid the directory of the layers below both."""
    for below in (f(b"d"), white(b"d"), Entry(path=b"d", kind=SYMLINK, target=b"x")):
        folded = fold(tree(below), tree(f(b"d/x")))
        assert folded == tree(d(b"d", opaque=True), f(b"d/x"))
        assert paths(apply(tree(f(b"d/old")), folded)) == [b"d", b"d/x"]


def test_folding_keeps_whiteouts_and_opaque_directories() -> None:
    folded = fold(tree(white(b"a"), d(b"o", opaque=True)), tree(white(b"b"), d(b"o")))
    assert folded == tree(white(b"a"), white(b"b"), d(b"o", opaque=True))


def test_a_file_over_a_whiteout_is_the_file() -> None:
    assert fold(tree(white(b"a")), tree(f(b"a"))) == tree(f(b"a"))


def test_hard_links_of_the_two_sides_stay_apart() -> None:
    lower = tree(f(b"a", 1, group=1), f(b"b", 1, group=1))
    upper = tree(f(b"c", 2, group=1), f(b"d", 2, group=1))
    groups = {entry.path: entry.link_group for entry in apply(lower, upper)}
    assert groups == {b"": 0, b"a": 1, b"b": 1, b"c": 2, b"d": 2}


def test_a_replaced_name_leaves_its_link_group() -> None:
    lower = tree(f(b"a", 1, group=1), f(b"b", 1, group=1), f(b"c", 1, group=1))
    one_left = apply(lower, tree(white(b"b"), f(b"c", 2)))
    assert [entry.link_group for entry in one_left] == [0, 0, 0]
    two_left = apply(lower, tree(white(b"b")))
    assert [entry.link_group for entry in two_left] == [0, 1, 1]


def test_a_link_to_a_file_of_a_lower_layer_joins_the_names_that_the_upper_lists() -> None:
    lower = tree(f(b"a", 1, group=1), f(b"z", 1, group=1))
    merged = apply(lower, tree(f(b"a", 1, group=5), f(b"new", 1, group=5)))
    groups = {entry.path: entry.link_group for entry in merged}
    assert groups == {b"": 0, b"a": 1, b"new": 1, b"z": 0}


def test_hard_linked_kinds_other_than_files_stay_linked() -> None:
    for kind in (SYMLINK, EntryKind.FIFO, EntryKind.CHAR, EntryKind.BLOCK, EntryKind.SOCKET):
        linked = tree(
            Entry(path=b"a", kind=kind, link_group=1), Entry(path=b"b", kind=kind, link_group=1)
        )
        assert [entry.link_group for entry in apply(tree(f(b"c")), linked)] == [0, 1, 1, 0]


def test_contents_come_from_the_side_that_won() -> None:
    low, high = LocalFile(b"/low"), Spooled(b"/high", ((0, 1, 0),))
    lower = Source(
        tree(f(b"a"), f(b"b"), f(b"gone"), f(b"d")),
        {b"a": low, b"b": low, b"gone": low, b"d": low},
    )
    upper = Source(tree(f(b"b"), white(b"gone"), f(b"d/x")), {b"b": high, b"d/x": high})
    expected = {b"a": low, b"b": high, b"d/x": high}
    assert apply_sources(lower, upper).contents == expected
    assert fold_sources(lower, upper).contents == expected
    assert apply_sources(lower, upper).tree == apply(lower.tree, upper.tree)
    assert fold_sources(lower, upper).tree == fold(lower.tree, upper.tree)


def test_no_whiteout_is_left_in_an_opaque_directory() -> None:
    """It would tell the name of a file that is gone."""
    lower = tree(d(b"o", opaque=True), f(b"o/d/x"), f(b"o/y"), white(b"z"))
    folded = fold(lower, tree(white(b"o/d/x"), white(b"o/y"), white(b"o/none")))
    assert folded == tree(d(b"o", opaque=True), d(b"o/d"), white(b"z"))
    renewed = fold(tree(white(b"o")), tree(d(b"o"), white(b"o/x")))
    assert renewed == tree(d(b"o", opaque=True))
    assert fold(tree(), tree(d(b"", opaque=True), white(b"a"))) == tree(d(b"", opaque=True))


@fewer
@given(whole_trees, diffs, diffs)
def test_folding_first_or_applying_one_by_one_is_the_same(a: Tree, b: Tree, c: Tree) -> None:
    assert apply(a, fold(b, c)) == apply(apply(a, b), c)


@fewer
@given(diffs, diffs, diffs)
def test_folding_is_associative_in_effect(a: Tree, b: Tree, c: Tree) -> None:
    assert fold(fold(a, b), c) == fold(a, fold(b, c))


@fewer
@given(whole_trees)
def test_a_whole_tree_over_nothing_is_itself(a: Tree) -> None:
    assert apply(Tree.of([]), a) == a
    assert apply(a, Tree.of([a.entries[0]])) == a


@fewer
@given(whole_trees, diffs)
def test_the_result_is_whole_and_has_all_that_the_upper_has(a: Tree, b: Tree) -> None:
    merged = apply(a, b).by_path()
    assert not any(entry.opaque or entry.kind is WHITE for entry in merged.values())
    for entry in b:
        assert (entry.path in merged) == (entry.kind is not WHITE)


@st.composite
def tree_and_change(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree, and a diff that has many of its paths."""
    lower = draw(whole_trees)
    chosen = [entry for entry in lower if entry.path and draw(st.booleans())]
    changes = []
    for entry in chosen:
        kind = draw(st.sampled_from([DIR, FILE, WHITE]))
        opaque = kind is DIR and draw(st.booleans())
        changes.append(Entry(path=entry.path, kind=kind, opaque=opaque))
    leaves = [change for change in changes if change.kind is not DIR]
    hidden = tuple(leaf.path + b"/" for leaf in leaves)
    return lower, tree(*(change for change in changes if not change.path.startswith(hidden)))


@fewer
@given(tree_and_change())
def test_against_the_rules_taken_one_path_at_a_time(drawn: tuple[Tree, Tree]) -> None:
    lower, upper = drawn
    changes = upper.by_path()

    def shown(path: bytes) -> bool:
        """Whether the lower's entry at `path` shows."""
        if path in changes:
            return False
        parents = [path[:at] for at in range(len(path)) if path[at : at + 1] == b"/"]
        over = [changes[parent] for parent in parents if parent in changes]
        return all(change.kind is DIR and not change.opaque for change in over)

    expected = {entry.path for entry in lower if shown(entry.path)}
    expected |= {path for path, change in changes.items() if change.kind is not WHITE}
    assert set(apply(lower, upper).by_path()) == expected
