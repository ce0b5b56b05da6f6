"""Layers over another C library, or an older one, than the one they were built over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.offers import GLIBC, MUSL, Offers, offers, written
from dsec_layers.api.checks.part import Case, Part
from dsec_layers.api.opened import text
from dsec_layers.model.tree import Entry, EntryKind

RULE = "libc"

# Extension modules of Python say in their names which C library they were made for.
_MADE_FOR: Final = re.compile(rb".*-linux-(gnu|musl)[^/]*\.so")
_LIBRARY: Final = re.compile(rb".*\.so(?:\.\d+)*")


def check(case: Case) -> Iterator[Finding]:
    """An error where no library of the kind is left, a warning where glibc has become older."""
    now = offers(case.parts)
    for part in case.parts[1:]:
        then = None if part.saw(case.base) or not part.built_on else offers(part.built_on)
        yield from filter(None, [_kind(case, part, then, now) or _age(case, part, then, now)])


def _kind(case: Case, part: Part, then: Offers | None, now: Offers) -> Finding | None:
    told = _told(part)
    wanted = set(told) or (set(then.libcs) if then else set())
    if not wanted or not now.libcs or wanted & now.libcs:
        return None
    native = next(iter(told.values()), None) or _native(part)
    if native is None:
        return None
    sure = bool(told) or _LIBRARY.fullmatch(native.name) is not None
    return Finding(
        severity=Severity.ERROR if sure else Severity.WARNING,
        rule=RULE,
        layer=part.name,
        path="/" + text(native.path),
        message=f"{'was made' if sure else 'may be made'} for {' or '.join(sorted(wanted))}, "
        f"and {case.base.name} has {' and '.join(sorted(now.libcs))}",
        other=case.base.name,
    )


def _age(case: Case, part: Part, then: Offers | None, now: Offers) -> Finding | None:
    if not then or not then.glibc or not now.glibc or then.glibc <= now.glibc:
        return None
    native = _native(part)
    if native is None:
        return None
    return Finding(
        severity=Severity.WARNING,
        rule=RULE,
        layer=part.name,
        path="/" + text(native.path),
        message=f"was built over glibc {written([then.glibc])}, and {case.base.name} has "
        f"{written([now.glibc])}: --deep tells whether it can be loaded",
        other=case.base.name,
    )


def _told(part: Part) -> dict[str, Entry]:
    """The C libraries that names of files tell of, each with the first such file."""
    found: dict[str, Entry] = {}
    for entry in part.tree:
        if entry.kind is EntryKind.FILE and (match := _MADE_FOR.fullmatch(entry.name)):
            found.setdefault(GLIBC if match[1] == b"gnu" else MUSL, entry)
    return found


def _native(part: Part) -> Entry | None:
    """A file that is certainly compiled, by its name; else one that can be run, if there is one."""
    runnable = None
    for entry in part.tree:
        if entry.kind is EntryKind.FILE and entry.size:
            if _LIBRARY.fullmatch(entry.name):
                return entry
            if runnable is None and entry.mode & 0o111:
                runnable = entry
    return runnable
