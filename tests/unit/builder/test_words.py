from __future__ import annotations

import pytest

from dsec_layers.builder.words import Flag, parse_json_list, parse_pairs, split_words, take_flags


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  a \t b ", ["a", "b"]),
        ("a='b c' d", ["a='b c'", "d"]),
        ('a="b c"d e', ['a="b c"d', "e"]),
        (r"a\ b c", [r"a\ b", "c"]),
        (r'"a \" b" c', [r'"a \" b"', "c"]),
        (r"'a\' b", [r"'a\'", "b"]),
        ("''", ["''"]),
    ],
)
def test_split_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(ValueError, match="not closed"):
        split_words("a 'b c")


@pytest.mark.parametrize(
    ("text", "flags", "rest"),
    [
        ("a --b=c", [], "a --b=c"),
        ("--from=x a b", [Flag("from", "x")], "a b"),
        ("--from=x  --chown=1:2 a  b", [Flag("from", "x"), Flag("chown", "1:2")], "a  b"),
        ("--link a", [Flag("link", "")], "a"),
        ("-- --from=x", [], "--from=x"),
        ("--chmod=0644", [Flag("chmod", "0644")], ""),
        ("---x a", [], "---x a"),
    ],
)
def test_flags(text: str, flags: list[Flag], rest: str) -> None:
    assert take_flags(text) == (flags, rest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["a", "b c"]', ("a", "b c")),
        ("[]", ()),
        (r'["\u00e9\n"]', ("é\n",)),
        ("['a']", None),
        ("[ -f x ] && y", None),
        ('["a", 1]', None),
        ('["a"] b', None),
        ("a", None),
    ],
)
def test_json_lists(text: str, words: tuple[str, ...] | None) -> None:
    assert parse_json_list(text) == words


def test_pairs_in_both_forms() -> None:
    assert parse_pairs('a=1 b="2 3" c=x=y') == [("a", "1"), ("b", '"2 3"'), ("c", "x=y")]
    assert parse_pairs("a the  rest = all") == [("a", "the  rest = all")]
    assert parse_pairs("a=") == [("a", "")]


@pytest.mark.parametrize("text", ["", "a", "a=1 b", "=1", "a=1 =2", "a='1"])
def test_malformed_pairs(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|quote|value"):
        parse_pairs(text)


@pytest.mark.parametrize("text", [r'["a\u0000"]', r'["a", "\ud800"]', r'["\udc80"]'])
def test_what_no_program_can_be_given_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NUL or half of a character"):
        parse_json_list(text)


def test_a_list_too_deep_for_json_is_for_the_shell() -> None:
    assert parse_json_list("[" * 100_000) is None
