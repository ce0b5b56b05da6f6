"""Modification times for reproducible builds."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dsec_layers.model.content import Source
from dsec_layers.model.tree import Entry, Tree


def clamp_times(source: Source, epoch_s: int) -> Source:
    """The same source with no modification time later than `epoch_s` seconds after 1970.

    The meaning is that of SOURCE_DATE_EPOCH: what is older keeps its time.
    """
    return Source(Tree(tuple(_clamped(source.tree, epoch_s * 10**9))), source.contents)


def _clamped(tree: Tree, latest_ns: int) -> Iterator[Entry]:
    for entry in tree:
        if entry.mtime_ns <= latest_ns:
            yield entry
        else:
            yield msgspec.structs.replace(entry, mtime_ns=latest_ns)
