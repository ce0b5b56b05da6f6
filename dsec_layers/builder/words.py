"""How an instruction's text falls into words, flags and JSON lists, before variables are replaced.

Errors are ValueError: only the caller knows the line.
"""

from __future__ import annotations

import json
import re

import msgspec

_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9-]*)(?:=(.*))?", re.DOTALL)

_WORD = re.compile(r"\s*(\S+)\s*")


class Flag(msgspec.Struct, frozen=True):
    """`--name=value`; the value is empty without an equals sign and still holds its variables."""

    name: str
    value: str


def split_words(text: str, *, escape: str = "\\") -> list[str]:
    """Split at white space outside of quotes; quotes and escapes stay. Raises ValueError."""
    words: list[str] = []
    word = ""
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        if character == escape and quote != "'":
            character = text[position : position + 2]
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character.isspace():
            if word:
                words.append(word)
            word = ""
            position += 1
            continue
        word += character
        position += len(character)
    if quote:
        raise ValueError(f"quote {quote} is not closed")
    return [*words, word] if word else words


def take_flags(text: str) -> tuple[list[Flag], str]:
    """The flags at the start of an instruction's text, and the rest. A bare `--` ends them."""
    flags: list[Flag] = []
    rest = 0
    for match in _WORD.finditer(text):
        word, rest = match[1], match.start(1)
        if word != "--" and _FLAG.fullmatch(word) is None:
            break
        rest = match.end()
        if word == "--":
            break
        name, _, value = word[2:].partition("=")
        flags.append(Flag(name.lower(), value))
    return flags, text[rest:]


def parse_json_list(text: str) -> tuple[str, ...] | None:
    """The strings of a JSON list, or None when `text` is anything else (a shell command).

    Raises ValueError for strings that no program can be given.
    """
    if not text.startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        return None
    for word in value:
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise ValueError(f"{word!a} holds a NUL or half of a character")
    return tuple(value)


def parse_pairs(text: str, *, escape: str = "\\") -> list[tuple[str, str]]:
    """The pairs of ENV and LABEL: `a=b c="d e"`, or the old form `a rest`. Quotes stay."""
    words = split_words(text, escape=escape)
    if not words:
        raise ValueError("needs at least one name=value")
    if "=" not in words[0]:
        name, *rest = text.split(maxsplit=1)
        if not rest:
            raise ValueError(f"{name} has no value: write {name}=value")
        return [(name, rest[0])]
    pairs = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError(f"{word!r} is not of the form name=value")
        pairs.append((name, value))
    return pairs
