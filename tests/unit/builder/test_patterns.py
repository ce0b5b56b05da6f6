from __future__ import annotations

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
