"""Loose git objects that nothing in their repository leads to.

Such are files that were added and replaced, and amended commits that have left the reflog.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dsec_layers.builder import gitshadow
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.model.tree import Entry, EntryKind, Tree

_LOOSE: Final = re.compile(rb"(.*/|)\.git/objects/([0-9a-f]{2})/([0-9a-f]{38,62})", re.DOTALL)


def loose_objects(diff: Tree) -> dict[bytes, dict[bytes, bytes]]:
    """By path of a `.git` directory: the loose objects that `diff` adds, path by id."""
    found: dict[bytes, dict[bytes, bytes]] = {}
    for entry in diff:
        match = _match(entry)
        if match is not None:
            objects = found.setdefault(match[1] + b".git", {})
            objects[match[2] + match[3]] = entry.path
    return found


def unreachable(folder: Path, work: Path, objects: dict[bytes, bytes]) -> set[bytes]:
    """The paths of those of `objects` to which no reference, reflog or index leads.

    None while a merge or the like is under way, and of a repository that is refused: then all stay.
    `folder` is the `.git` directory, `work` a new folder.
    """
    try:
        gitshadow.check(folder)
        if gitshadow.under_way(folder):
            return set()
        shadow = gitshadow.shadow(folder, work)
        words = ("rev-list", "--objects", "--no-object-names", "--all", "--reflog")
        reached = set(shadow.lines(*words, "--indexed-objects"))
    except (InvalidInputError, DsecError):
        return set()
    return {path for digest, path in objects.items() if digest not in reached}


def _match(entry: Entry) -> re.Match[bytes] | None:
    return _LOOSE.fullmatch(entry.path) if entry.kind is EntryKind.FILE else None
