"""Many diffs become one, or a whole tree, whatever the order in which they are put together."""

from __future__ import annotations

import functools

from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.folding import one_diff, whole_tree
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.merge import apply_sources, fold_sources
from dsec_layers.model.tree import EntryKind, Tree
from tests.support.profiles import fewest
from tests.support.trees import trees


def with_contents(tree: Tree, name: bytes) -> Source:
    files = [entry for entry in tree if entry.kind is EntryKind.FILE]
    return Source(tree, {entry.path: LocalFile(name) for entry in files})


@fewest
@given(st.lists(trees().map(lambda drawn: drawn[0]), max_size=7))
def test_halves_first_is_the_same_as_one_by_one(drawn: list[Tree]) -> None:
    diffs = [with_contents(tree, b"/%d" % number) for number, tree in enumerate(drawn)]
    empty = Source(Tree.of([]))
    assert whole_tree(diffs) == functools.reduce(apply_sources, diffs, empty)
    assert one_diff(diffs) == (functools.reduce(fold_sources, diffs) if diffs else empty)
