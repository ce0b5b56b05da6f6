"""Patterns in `${x#pattern}` and the like: `*` any text, `?` any character, a backslash quotes.

Matching takes time proportional to the lengths of text and pattern, whatever they are. Replacing
starts anew at every character, so it gives up where that takes too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_TOKEN = re.compile(r"\\(.)|(.)|(\\)", re.DOTALL)
_ANY = "any"
_ONE = "one"
_MAX_STEPS: Final = 2_000_000
_MAX_LENGTH: Final = 1 << 20


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
    """`value` with the first match, or every one, replaced; of matches the longest counts.

    Raises ValueError when that takes too long, or the result is too long.
    """
    tokens = list(_tokens(pattern))
    result: list[str] = []
    position = steps = produced = 0
    while position < len(value):
        length = examined = 0
        for examined, matches in _starts(value, position, tokens):
            length = examined if matches else length
        steps += 1 + examined * len(tokens)
        produced += len(replacement) if length else 1
        if steps > _MAX_STEPS or produced > _MAX_LENGTH:
            raise ValueError(f"{value[:40]!r}... is too long to replace {pattern[:40]!r} in it")
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
    lengths = (length for length, matches in _starts(value, 0, tokens) if matches)
    length = max(lengths, default=0) if longest else next(lengths, 0)
    return value[length:]


def _tokens(pattern: str) -> Iterator[str]:
    """`any`, `one`, or a character that stands for itself."""
    for quoted, plain, last in _TOKEN.findall(pattern):
        if plain in ("*", "?"):
            yield _ANY if plain == "*" else _ONE
        else:
            yield quoted or plain or last


def _starts(value: str, at: int, tokens: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Lengths from `at` on in ascending order, and whether the tokens match so much of `value`."""
    states = _settled({0}, tokens)
    for length in range(len(value) - at + 1):
        yield length, len(tokens) in states
        if at + length == len(value) or not states:
            return
        states = _settled(set(_stepped(states, tokens, value[at + length])), tokens)


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
