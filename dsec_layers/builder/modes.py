"""`--chmod`: permission bits in octal digits, or changes as chmod(1) takes them: `u=rwX,go-w`."""

from __future__ import annotations

import re
from typing import Final

from dsec_layers.errors import InvalidInputError

# Bits, or the text of the changes.
Mode = int | str

_OCTAL: Final = re.compile(r"0?[0-7]{1,4}")
_CLAUSE: Final = re.compile(r"([ugoa]*)((?:[-+=](?:[rwxXst]*|[ugo]))+)")
_ACTION: Final = re.compile(r"([-+=])([^-+=]*)")
_WHO: Final = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}
_SHIFT: Final = {"u": 6, "g": 3, "o": 0}
_BITS: Final = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}


def parse_mode(text: str) -> Mode:
    """The mode that `text` says. Raises InvalidInputError."""
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    if all(_CLAUSE.fullmatch(clause) for clause in text.split(",")):
        return text
    raise InvalidInputError(
        f"invalid mode {text!r}", hint="--chmod takes octal digits or changes: 0755, u=rwX,go=rX"
    )


def apply_mode(mode: Mode, before: int, *, is_directory: bool) -> int:
    """The permission bits of a file that had `before`. Without u, g and o a change is for all."""
    if isinstance(mode, int):
        return mode
    for clause in mode.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(f"not a mode: {mode!r}")
        mask = 0
        for who in match[1] or "a":
            mask |= _WHO[who]
        for operator, letters in _ACTION.findall(match[2]):
            bits = _bits(letters, before, is_directory=is_directory) & mask
            if operator == "=":
                before = before & ~mask | bits
            else:
                before = before | bits if operator == "+" else before & ~bits
    return before


def _bits(letters: str, before: int, *, is_directory: bool) -> int:
    if letters in _SHIFT:
        return (before >> _SHIFT[letters] & 0o7) * 0o111
    bits = 0
    for letter in letters:
        if letter == "X":
            bits |= 0o111 if is_directory or before & 0o111 else 0
        else:
            bits |= _BITS[letter]
    return bits
