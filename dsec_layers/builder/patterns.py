"""Path patterns: those of COPY sources, one component at a time, and those of `.dockerignore`.

Both work on bytes, because file names are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPECIAL = re.compile(rb"[*?\[\\]")
_TOKEN = re.compile(rb"\*\*+/?|\*|\?|\[\^?(?:\\.|[^\\\]])+\]|\\.|[^\\\[]", re.DOTALL)

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
        try:
            return re.compile(b"".join(map(_translate, tokens)), re.DOTALL)
        except re.error:
            pass
    raise ValueError(f"malformed pattern {pattern.decode(errors='replace')!r}")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
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


def _translate(token: bytes) -> bytes:
    if token.startswith(b"**"):
        return b"(?:.*/)?" if token.endswith(b"/") else b".*"
    if token == b"*":
        return b"[^/]*"
    if token == b"?":
        return b"[^/]"
    if token.startswith(b"["):
        return b"(?!/)[" + _OPEN_BRACKET.sub(rb"\[", token[1:])
    return re.escape(token[-1:])
