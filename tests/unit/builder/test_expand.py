from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.expand import expand, expand_heredoc

VARIABLES = {"x": "value", "empty": "", "HOME": "/root", "a_1": "one", "y": "$x"}
VARIABLES |= {"p": "/usr/lib/x.tar.gz", "stars": "**?a", "sep": "/"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("$x", "value"),
        ("${x}", "value"),
        ("a${x}b", "avalueb"),
        ("$x/b", "value/b"),
        ("$xb", ""),
        ("$a_1-", "one-"),
        ("$y", "$x"),  # values are not expanded again
        ("$unset", ""),
        ("${unset}", ""),
        ("${x:-other}", "value"),
        ("${empty:-other}", "other"),
        ("${empty-other}", ""),
        ("${unset:-other}", "other"),
        ("${unset-other}", "other"),
        ("${unset:-}", ""),
        ("${x:+other}", "other"),
        ("${empty:+other}", ""),
        ("${empty+other}", "other"),
        ("${unset:+other}", ""),
        ("${unset+other}", ""),
        ("${x:?message}", "value"),
        ("${empty?message}", ""),
        ("${unset:-$x}", "value"),
        ("${unset:-${x}/b}", "value/b"),
        ("${unset:-${empty:-deep}}", "deep"),
        ("${unset:-'}'}", "}"),
        (r"${unset:-\}}", "}"),
        ('${unset:-"a b"}', "a b"),
        (r"\$x", "$x"),
        (r"\${x}", "${x}"),
        (r"\\$x", r"\value"),
        (r"a\ b", "a b"),
        ("trailing\\", "trailing"),
        ("'$x'", "$x"),
        (r"'a\b'", r"a\b"),
        ('"$x y"', "value y"),
        (r'"\$x \"q\" \n \\"', r'$x "q" \n ' + "\\"),
        ("a'b'\"c\"d", "abcd"),
        ('"it\'s"', "it's"),
        ("'say \"hi\"'", 'say "hi"'),
        ("${p#*/}", "usr/lib/x.tar.gz"),
        ("${p##*/}", "x.tar.gz"),
        ("${p%.*}", "/usr/lib/x.tar"),
        ("${p%%.*}", "/usr/lib/x"),
        ("${p%/}", "/usr/lib/x.tar.gz"),
        ("${p#/usr}", "/lib/x.tar.gz"),
        ("${p#usr}", "/usr/lib/x.tar.gz"),
        ("${p%.??}", "/usr/lib/x.tar"),
        ("${p/\\//-}", "-usr/lib/x.tar.gz"),
        ("${p//\\//-}", "-usr-lib-x.tar.gz"),
        ("${p//[/]/-}", "/usr/lib/x.tar.gz"),
        ("${p/.*/}", "/usr/lib/x"),
        ("${p/lib}", "/usr//x.tar.gz"),
        ("${p//r/$x}", "/usvalue/lib/x.tavalue.gz"),
        ("${p/'/'*/a b}", "a b"),
        ("${p##*$sep}", "x.tar.gz"),
        ("${p/${unset:-lib}/${x%e}}", "/usr/valu/x.tar.gz"),
        ("${stars#\\*}", "*?a"),
        ("${stars//'*'/x}", "xx?a"),
        ("${stars//\\?/x}", "**xa"),
        ("${stars##*}", ""),
        ("${stars#*}", "**?a"),
        ("${stars//*/x}", "x"),
        ("${stars///x}", "**?a"),
        ("${unset#a}${unset%a}${unset/a/b}", ""),
        ("${empty/a/b}", ""),
        ('"${p##*/} ${x//a/A}"', "x.tar.gz vAlue"),
        ("$", "$"),
        ("$ x", "$ x"),
        ("$/", "$/"),
        ("a$", "a$"),
        ("$1", ""),
        ("ünï$x", "ünïvalue"),
    ],
)
def test_words(text: str, result: str) -> None:
    assert expand(text, VARIABLES) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${x", "unsupported modifier|missing"),
        ("${}", "bad substitution"),
        ("${ x}", "bad substitution"),
        ("${unset:-a", "missing '}'"),
        ("${x!a}", "unsupported modifier"),
        ("${x:a}", "unsupported modifier"),
        ("${unset:?give it}", "unset: give it"),
        ("${empty:?}", "empty: is not set"),
        ("${unset?}", "unset: is not set"),
        ("'open", "single quote"),
        ('"open', "double quote"),
        ('"${x', "unsupported modifier|missing"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expand(text, VARIABLES)


def test_another_escape_character() -> None:
    assert expand(r"C:\dir\`$x`$", VARIABLES, escape="`") == r"C:\dir\$x$"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a $x\n", "a value\n"),
        ("'$x' \"$x\"\n", "'value' \"value\"\n"),
        (r"\$x \\ \n \` \"", '$x \\ \\n ` \\"'),
        ("one \\\ntwo", "one two"),
        ("it's $5", "it's "),
    ],
)
def test_heredocs(text: str, result: str) -> None:
    assert expand_heredoc(text, VARIABLES) == result


@given(st.text())
def test_single_quotes_keep_everything(text: str) -> None:
    text = text.replace("'", "")
    assert expand(f"'{text}'", VARIABLES) == text


@given(st.text())
def test_any_text_expands_or_is_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        expand(text, VARIABLES)


def test_variables_in_variables_without_end_are_refused() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        expand("${a:-" * 10_000 + "}" * 10_000, {})
