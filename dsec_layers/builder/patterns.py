"""Path patterns: those of COPY sources, one component at a time, and those of `.dockerignore`.

Both work on bytes, because file names are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

import msgspec

_SPECIAL = re.compile(rb"[*?\[\\]")
_TOKEN = re.compile(rb"\*\*+/?|\*|\?|\[\^?(?:\\.|[^\\\]])+\]|\\.|[^\\\[]", re.DOTALL)

_MAX_ALTERNATIVES: Final = 16
_OPEN_BRACKET = re.compile(rb"(?<!\\)\[")


def has_wildcard(pattern: bytes) -> bool:
    """Whether `pattern` means anything else than itself."""
    return _SPECIAL.search(pattern) is not None


def compile_pattern(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern with `*`, `?`, `[a-z]`, `[^a-z]`, `**` and backslash, to be matched in full.

    Only `**` matches a slash. Raises ValueError when the pattern is malformed.
    """
    tokens = _TOKEN.findall(pattern)
    if b"".join(tokens) == pattern:
        alternatives = map(_whole, _alternatives(tokens))
        try:
            return re.compile(b"|".join(alternatives), re.DOTALL)
        except re.error:
            pass
    raise ValueError(f"malformed pattern {pattern.decode(errors='replace')!r}")


class IgnoreRule(msgspec.Struct, frozen=True):
    """One line of a `.dockerignore`; with `keeps` it started with an exclamation mark."""

    keeps: bool
    pattern: re.Pattern[bytes]


class IgnoreRules:
    """A `.dockerignore`: the last rule that matches a path, or a directory above it, decides."""

    def __init__(self, rules: Iterable[IgnoreRule] = ()) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, data: bytes) -> IgnoreRules:
        """Parse the file. Raises ValueError naming the pattern that is malformed."""
        rules = []
        for line in data.removeprefix(b"\xef\xbb\xbf").splitlines():
            pattern = line.strip()
            if line.startswith(b"#") or not pattern:
                continue
            if pattern == b"!":
                raise ValueError("'!' without a pattern")
            keeps = pattern.startswith(b"!")
            cleaned = _clean(pattern[keeps:].strip())
            if cleaned:
                rules.append(IgnoreRule(keeps, compile_pattern(cleaned)))
        return cls(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: bytes) -> bool:
        """Whether the relative path is left out of the context."""
        parts = path.split(b"/")
        candidates = [b"/".join(parts[: count + 1]) for count in range(len(parts))]
        for rule in reversed(self._rules):
            if any(rule.pattern.fullmatch(candidate) for candidate in candidates):
                return not rule.keeps
        return False


def _clean(pattern: bytes) -> bytes:
    """Without leading, trailing and doubled slashes and without `.` and `..` components."""
    parts: list[bytes] = []
    for part in pattern.split(b"/"):
        if part == b"..":
            parts = parts[:-1]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)


def _alternatives(tokens: list[bytes]) -> list[list[bytes]]:
    """The tokens, with both things that a `**/` in the middle of a name can be.

    They are nothing, or `**` and a slash. Elsewhere it stays, as nothing or any directories.
    """
    found: list[list[bytes]] = [[]]
    for token in tokens:
        longer = []
        for head in found:
            is_within = token.endswith(b"*/") and head and not head[-1].endswith(b"/")
            if is_within:
                longer.append([*head, b"**", b"/"])
            else:
                head.append(token)
        found += longer
        if len(found) > _MAX_ALTERNATIVES:
            shown = repr(b"".join(tokens)[:200].decode(errors="replace"))
            raise ValueError(f"the pattern {shown} has too many `**/` that end a name")
    return found


def _committed(
    tokens: list[bytes], wildcard: bytes, inner: Callable[[list[bytes]], bytes]
) -> bytes:
    """The tokens translated by `inner`, from one wildcard to the next.

    The first place where the text behind a wildcard matches is as good as any later one, because
    the next wildcard can pass over what lies between. So only the last text is looked for in more
    than one place; an atomic group keeps the others where they are, and no pattern takes long.
    """
    starts = [number for number, token in enumerate(tokens) if token.startswith(wildcard)]
    parts = [inner(tokens[start:end]) for start, end in pairwise([0, *starts, len(tokens)])]
    return b"".join(b"(?>%b)" % part for part in parts[:-1]) + parts[-1]


def _whole(tokens: list[bytes]) -> bytes:
    """From one `**` to the next, which can pass over whatever lies between."""
    return _committed(tokens, b"**", _in_names)


def _in_names(tokens: list[bytes]) -> bytes:
    """A `**` maybe, and from one `*` to the next, which stay in a name."""
    has_head = bool(tokens) and tokens[0].startswith(b"**")
    head = _translate(tokens[0]) if has_head else b""
    return head + _committed(tokens[has_head:], b"*", lambda part: b"".join(map(_translate, part)))


def _translate(token: bytes) -> bytes:
    if token.startswith(b"**"):
        return b"(?:.*?/)??" if token.endswith(b"/") else b".*?"
    if token == b"*":
        return b"[^/]*?"
    if token == b"?":
        return b"[^/]"
    if token.startswith(b"["):
        return b"(?!/)[" + _OPEN_BRACKET.sub(rb"\[", token[1:])
    return re.escape(token[-1:])
