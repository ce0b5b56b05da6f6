from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.patterns import IgnoreRules, compile_pattern, has_wildcard


def ignored(text: str, *paths: str) -> list[str]:
    rules = IgnoreRules.parse(text.encode())
    return [path for path in paths if rules.ignores(path.encode())]


def test_comments_empty_lines_and_white_space() -> None:
    assert ignored("# a\n\n  b  \n\t\n #c\n", "a", "b", "c", " #c", "#c") == ["b", "#c"]


def test_a_byte_order_mark_and_crlf() -> None:
    assert ignored("\ufeffa\r\nb\r\n", "a", "b") == ["a", "b"]


@pytest.mark.parametrize("pattern", ["d", "/d", "d/", "./d", "d//", "x/../d", "../d"])
def test_a_directory_with_all_below_it(pattern: str) -> None:
    assert ignored(pattern, "d", "d/a", "d/a/b", "e/d", "dd") == ["d", "d/a", "d/a/b"]


def test_wildcards_stay_in_a_component() -> None:
    paths = ("a.py", "b/a.py", "a.pyc", "b", ".py", "ab/c")
    assert ignored("*.py", *paths) == ["a.py", ".py"]
    assert ignored("*/a.py", *paths) == ["b/a.py"]
    assert ignored("?", *paths) == ["b/a.py", "b"]
    assert ignored("[^a]*", *paths) == ["b/a.py", "b", ".py"]
    assert ignored("a[a-c]", *paths) == ["ab/c"]


def test_double_stars() -> None:
    paths = ("a", "x/a", "x/y/a", "x/y/b", "xa", "x")
    assert ignored("**/a", *paths) == ["a", "x/a", "x/y/a"]
    assert ignored("x/**", *paths) == ["x/a", "x/y/a", "x/y/b"]
    assert ignored("x/**/a", *paths) == ["x/a", "x/y/a"]
    assert ignored("**", *paths) == list(paths)
    assert ignored("**/y/**", *paths) == ["x/y/a", "x/y/b"]


def test_the_last_matching_rule_decides() -> None:
    text = "*.md\n!README*.md\nREADME-secret.md\n"
    paths = ("a.md", "README.md", "README-secret.md", "README-x.md")
    assert ignored(text, *paths) == ["a.md", "README-secret.md"]
    other = "*.md\nREADME-secret.md\n!README*.md\n"
    assert ignored(other, *paths) == ["a.md"]


def test_exceptions_below_an_ignored_directory() -> None:
    text = "*\n!src/keep\n! docs/ \nsrc/keep/*.tmp\n"
    paths = ("a", "src", "src/a", "src/keep", "src/keep/b", "src/keep/b.tmp", "docs/x/y")
    assert ignored(text, *paths) == ["a", "src", "src/a", "src/keep/b.tmp"]


def test_escapes() -> None:
    assert ignored("\\!a\n\\#b\nc\\*", "!a", "#b", "c*", "cd") == ["!a", "#b", "c*"]


def test_dots_ignore_nothing() -> None:
    assert ignored(".\n/\n!.\n", "a", "b/c") == []


@pytest.mark.parametrize("pattern", ["[a", "a[", "[]", "a\\", "[b-a]", "!", "a/[^"])
def test_malformed_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        IgnoreRules.parse(pattern.encode())


def test_names_that_are_not_text() -> None:
    rules = IgnoreRules.parse(b"\xff*\n")
    assert rules.ignores(b"\xffa")
    assert not rules.ignores(b"a\nb")


@given(st.binary(min_size=1))
def test_a_name_matches_itself_escaped(name: bytes) -> None:
    escaped = b"".join(b"\\" + bytes([byte]) for byte in name)
    assert compile_pattern(escaped).fullmatch(name)
    assert has_wildcard(escaped)


def test_a_double_star_in_a_name() -> None:
    paths = ("ab", "a/b", "a/c/b", "axb", "ax/b", "b")
    assert ignored("a**/b", *paths) == ["ab", "a/b", "a/c/b", "ax/b"]
    assert ignored("*a**/b", "xaab", "xa/ab", "xa/c/b") == ["xaab", "xa/c/b"]
    with pytest.raises(ValueError, match=r"a\*\*/a\*\*/.* has too many `\*\*/`"):
        compile_pattern(b"a**/" * 5)


@pytest.mark.parametrize(
    "pattern", [b"*a" * 20 + b"b", b"**/a/*a/" * 20 + b"b", b"**a*" * 20 + b"b"]
)
def test_no_pattern_takes_long(pattern: bytes) -> None:
    """A matcher that tries all ways would take years."""
    assert not compile_pattern(pattern).fullmatch(b"a/" * 500 + b"a" * 200)


def _tries_all(pattern: bytes, path: bytes) -> bool:
    """What a pattern of these signs matches, said in the shortest way."""
    if not pattern:
        return not path
    if pattern.startswith(b"**/"):
        rest = pattern[3:]
        starts = [at + 1 for at in range(len(path)) if path[at : at + 1] == b"/"]
        return any(_tries_all(rest, path[at:]) for at in (0, *starts))
    if pattern.startswith(b"**"):
        return any(_tries_all(pattern[2:], path[at:]) for at in range(len(path) + 1))
    if pattern.startswith(b"*"):
        name = path.split(b"/", 1)[0]
        return any(_tries_all(pattern[1:], path[at:]) for at in range(len(name) + 1))
    is_one = path and path[:1] != b"/" if pattern[:1] == b"?" else path[:1] == pattern[:1]
    return bool(is_one) and _tries_all(pattern[1:], path[1:])


@given(
    st.lists(st.sampled_from([b"*", b"**", b"**/", b"/", b"a", b"b", b"?"]), max_size=6),
    st.lists(st.sampled_from([b"a", b"b", b"/"]), max_size=7).map(b"".join),
)
def test_a_pattern_matches_what_trying_all_ways_finds(signs: list[bytes], path: bytes) -> None:
    pattern = re.sub(rb"\*\*+", b"**", b"".join(signs))
    try:
        compiled = compile_pattern(pattern)
    except ValueError:
        return
    assert bool(compiled.fullmatch(path)) == _tries_all(pattern, path)
