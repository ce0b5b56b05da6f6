"""Patterns in `${x#pattern}` and the like: `*` any text, `?` any character, a backslash quotes.

Matching takes time proportional to the lengths of text and pattern, whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r"\\(.)|(.)|(\\)", re.DOTALL)
_ANY = "any"
_ONE = "one"


def literal(text: str) -> str:
    """A pattern that matches `text` only."""
    return "".join(f"\\{character}" for character in text)


def trim(value: str, pattern: str, *, at_end: bool, longest: bool) -> str:
    """`value` without the shortest or longest match of the pattern at its start or end."""
    tokens = list(_tokens(pattern))
    if at_end:
        return _trim_start(value[::-1], tokens[::-1], longest=longest)[::-1]
    return _trim_start(value, tokens, longest=longest)


def substitute(value: str, pattern: str, replacement: str, *, every: bool) -> str:
    """`value` with the first match, or every one, replaced; of matches the longest counts."""
    tokens = list(_tokens(pattern))
    result: list[str] = []
    position = 0
    while position < len(value):
        length = max(_lengths(value[position:], tokens), default=0)
        if length == 0:  # what matches nothing is left alone, as in a shell
            result.append(value[position])
            position += 1
            continue
        result.append(replacement)
        position += length
        if not every:
            break
    return "".join(result) + value[position:]


def _trim_start(value: str, tokens: Sequence[str], *, longest: bool) -> str:
    lengths = _lengths(value, tokens)
    length = max(lengths, default=0) if longest else next(lengths, 0)
    return value[length:]


def _tokens(pattern: str) -> Iterator[str]:
    """`any`, `one`, or a character that stands for itself."""
    for quoted, plain, last in _TOKEN.findall(pattern):
        if plain in ("*", "?"):
            yield _ANY if plain == "*" else _ONE
        else:
            yield quoted or plain or last


def _lengths(value: str, tokens: Sequence[str]) -> Iterator[int]:
    """The lengths of the starts of `value` that the tokens match, in ascending order."""
    states = _settled({0}, tokens)
    for length in range(len(value) + 1):
        if len(tokens) in states:
            yield length
        if length == len(value) or not states:
            return
        states = _settled(set(_stepped(states, tokens, value[length])), tokens)


def _stepped(states: set[int], tokens: Sequence[str], character: str) -> Iterator[int]:
    """The states after one more character; a state is how many tokens have matched."""
    for state in states:
        if state < len(tokens):
            token = tokens[state]
            if token == _ANY:
                yield state
            elif token in (_ONE, character):
                yield state + 1


def _settled(states: set[int], tokens: Sequence[str]) -> set[int]:
    """With the states that are reached by letting `*` match nothing."""
    found: set[int] = set()
    for state in states:
        found.add(state)
        while state < len(tokens) and tokens[state] == _ANY:
            state += 1  # on to the next
            found.add(state)
    return found
