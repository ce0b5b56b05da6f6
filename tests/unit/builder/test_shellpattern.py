from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.shellpattern import literal, substitute, trim

TEXT = st.text("ab*?\\", max_size=8)


def regex(pattern: str, some: str) -> str:
    """The same pattern for the engine of Python; `some` stands for `*`."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"*": some, "?": "."}.get(part, re.escape(part[-1])) for part in parts)


@given(TEXT, TEXT)
def test_trimming_is_what_regular_expressions_match(value: str, pattern: str) -> None:
    lengths = [
        n for n in range(len(value) + 1) if re.fullmatch(regex(pattern, ".*"), value[:n], re.DOTALL)
    ]
    shortest, longest = (lengths[0], lengths[-1]) if lengths else (0, 0)
    assert trim(value, pattern, at_end=False, longest=False) == value[shortest:]
    assert trim(value, pattern, at_end=False, longest=True) == value[longest:]
    starts = [
        n for n in range(len(value) + 1) if re.fullmatch(regex(pattern, ".*"), value[n:], re.DOTALL)
    ]
    first, last = (starts[0], starts[-1]) if starts else (len(value), len(value))
    assert trim(value, pattern, at_end=True, longest=True) == value[:first]
    assert trim(value, pattern, at_end=True, longest=False) == value[:last]


@given(TEXT, TEXT, st.text(max_size=3))
def test_what_is_quoted_means_itself(value: str, text: str, word: str) -> None:
    if text:
        assert substitute(value, literal(text), word, every=True) == value.replace(text, word)
        assert substitute(value, literal(text), word, every=False) == value.replace(text, word, 1)


def test_many_stars_take_no_time() -> None:
    value = "a" * 2000
    assert trim(value, "*a" * 40 + "*b", at_end=False, longest=True) == value


def test_replacing_gives_up_where_it_takes_too_long() -> None:
    with pytest.raises(ValueError, match="too long to replace"):
        substitute("a" * 100_000, "*x*y", "", every=True)
    with pytest.raises(ValueError, match="too long to replace"):
        substitute("a" * 2000, "a", "b" * 1000, every=True)
