"""From the changes of many steps to what a layer holds: a whole tree, or a diff over its base."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from dsec_layers.linux import mount
from dsec_layers.model.content import Source
from dsec_layers.model.merge import apply_sources, fold_sources
from dsec_layers.model.tree import EntryKind, Tree

_EMPTY = Source(Tree.of([]))


def whole_tree(diffs: Sequence[Source]) -> Source:
    """What the diffs, lowest first, make of nothing.

    The lowest is often a whole root file system, so it is gone through once, not for each step.
    """
    lowest = apply_sources(_EMPTY, one_diff(diffs[:1]))
    return apply_sources(lowest, one_diff(diffs[1:])) if len(diffs) > 1 else lowest


def one_diff(diffs: Sequence[Source]) -> Source:
    """One diff with the effect of all, lowest first.

    Halves are folded before they are put together: what one large step made is then gone through a
    few times, not for each of the many steps around it.
    """
    if len(diffs) < 2:
        return diffs[0] if diffs else _EMPTY
    middle = len(diffs) // 2
    return fold_sources(one_diff(diffs[:middle]), one_diff(diffs[middle:]))


def has_whiteouts(source: Source) -> bool:
    """Whether a diff removes anything."""
    return any(entry.kind is EntryKind.WHITEOUT for entry in source.tree)


def without_idle_whiteouts(source: Source, lowers: Sequence[Path]) -> Source:
    """A diff without the whiteouts that hide nothing of `lowers` (topmost first).

    What one step makes and a later one removes leaves them. overlayfs lists a whiteout as a file
    when it lies in a directory that no lower layer has.
    """
    kept = []
    merges = {b"": True}  # whether a directory of the diff is merged with one below
    with mount.overlay_view(lowers) as view:
        for entry in source.tree:
            if entry.kind is EntryKind.WHITEOUT:
                if not (merges[entry.parent] and _mode(view, entry.path) is not None):
                    continue
            elif entry.kind is EntryKind.DIRECTORY and entry.path:
                below = _mode(view, entry.path) if merges[entry.parent] else None
                is_directory = below is not None and stat.S_ISDIR(below)
                merges[entry.path] = is_directory and not entry.opaque
            kept.append(entry)
    return Source(Tree.of(kept), source.contents)


def _mode(root: Path, path: bytes) -> int | None:
    try:
        return os.lstat(os.fsencode(root) + b"/" + path).st_mode
    except FileNotFoundError:
        return None
