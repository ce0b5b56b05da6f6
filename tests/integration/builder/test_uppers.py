"""What is written as the upper of an overlay reads as the diff that it was."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from dsec_layers.builder.uppers import write_upper
from dsec_layers.chunks.content import hash_content
from dsec_layers.model.content import Source
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.upper import walk_upper
from tests.support.trees import Contents, data_runs, trees

pytestmark = pytest.mark.root


def with_digests(source: Source) -> Tree:
    """The tree of a source with the digests of its contents."""
    return Tree.of(
        msgspec.structs.replace(entry, digest=hash_content(source.contents[entry.path], entry.size))
        if entry.kind is EntryKind.FILE
        else entry
        for entry in source.tree
    )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_an_upper_is_read_as_it_was_written(drawn: tuple[Tree, Contents]) -> None:
    tree, contents = drawn

    def read(entry: Entry) -> Iterator[tuple[int, bytes]]:
        data = contents[entry.path]
        for offset, length in data_runs(data):
            yield offset, data[offset : offset + length]

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        upper = Path(folder) / "upper"
        upper.mkdir()
        before = os.umask(0o077)
        try:
            write_upper(upper, tree, read)
        finally:
            os.umask(before)
        assert with_digests(walk_upper(upper)) == tree
