"""Owners and groups of files that have no name in the composition."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.api import contents
from dsec_layers.api.checks.deep import DeepCase
from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.opened import text
from dsec_layers.errors import NotFoundError
from dsec_layers.model.tree import Entry, EntryKind

RULE = "owner"
_FILES = (("user", "uid", b"etc/passwd"), ("group", "gid", b"etc/group"))


def check(deep: DeepCase) -> Iterator[Finding]:
    """A warning for each number that files of a layer above the base have, at its first path."""
    for what, field, path in _FILES:
        known = numbers(_content(deep, path)) | {0}
        for part in deep.case.parts[1:]:
            firsts: dict[int, Entry] = {}
            for entry in part.tree:
                if entry.kind is not EntryKind.WHITEOUT:
                    firsts.setdefault(getattr(entry, field), entry)
            for number in sorted(firsts.keys() - known):
                yield Finding(
                    severity=Severity.WARNING,
                    rule=RULE,
                    layer=part.name,
                    path="/" + text(firsts[number].path),
                    message=f"belongs to the {what} {number}, which /{path.decode()} does not name",
                )


def numbers(file: bytes) -> frozenset[int]:
    """The third fields of the lines of passwd(5) or group(5), where they are numbers."""
    fields = (line.split(b":") for line in file.splitlines())
    return frozenset(int(each[2]) for each in fields if len(each) > 2 and each[2].isdigit())


def _content(deep: DeepCase, path: bytes) -> bytes:
    try:
        index, entry = contents.find(deep.case.parts, path)
    except NotFoundError:
        return b""
    if entry.kind is not EntryKind.FILE:
        return b""
    return deep.read(deep.case.parts[index], entry, 0, entry.size)
