"""Variables in a Layerfile: `$x`, `${x}`, `${x:-word}`, quotes and escapes, as in a Dockerfile.

An unset variable is empty. `word` may hold variables itself. Errors are ValueError: only the caller
knows the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_IN_DOUBLE_QUOTES = '"$'
_IN_HEREDOC = "$`\n"


def expand(text: str, variables: Mapping[str, str], *, escape: str = "\\") -> str:
    """Replace variables in a word, remove its quotes and resolve its escapes. Raises ValueError."""
    return _Expander(text, variables, escape, quotes=True).whole()


def expand_heredoc(text: str, variables: Mapping[str, str]) -> str:
    """Replace variables in a here-document: quotes stay, a backslash escapes as in a shell."""
    return _Expander(text, variables, "\\", quotes=False).whole()


class _Expander:
    """One pass over `text`; `position` is the next character to look at."""

    def __init__(self, text: str, variables: Mapping[str, str], escape: str, *, quotes: bool):
        self.text = text
        self.variables = variables
        self.escape = escape
        self.quotes = quotes
        self.position = 0

    def whole(self) -> str:
        """Expand all of the text."""
        try:
            return self._run(end="")
        except RecursionError:
            raise ValueError("variables stand in one another too deeply") from None

    def _run(self, end: str) -> str:
        """Expand up to and over the character `end`, or to the end of the text when it is empty."""
        result: list[str] = []
        while self.position < len(self.text):
            character = self._next()
            if character == end:
                return "".join(result)
            if character == "$":
                result.append(self._variable())
            elif character == self.escape:
                result.append(self._escaped())
            elif character == "'" and self.quotes:
                result.append(self._single_quoted())
            elif character == '"' and self.quotes:
                result.append(self._double_quoted())
            else:
                result.append(character)
        if end:
            raise ValueError(f"missing {end!r} in {self.text!r}")
        return "".join(result)

    def _next(self) -> str:
        """The next character, consumed; empty at the end."""
        character = self.text[self.position : self.position + 1]
        self.position += 1
        return character

    def _escaped(self) -> str:
        character = self._next()
        if self.quotes:
            return character
        if character == "\n":
            return ""
        return character if character in (*_IN_HEREDOC, self.escape) else self.escape + character

    def _single_quoted(self) -> str:
        end = self.text.find("'", self.position)
        if end < 0:
            raise ValueError(f"single quote is not closed in {self.text!r}")
        content = self.text[self.position : end]
        self.position = end + 1
        return content

    def _double_quoted(self) -> str:
        result: list[str] = []
        while character := self._next():
            if character == '"':
                return "".join(result)
            if character == "$":
                character = self._variable()
            elif character == self.escape:
                following = self._next()
                kept = "" if following in (*_IN_DOUBLE_QUOTES, self.escape) else self.escape
                character = kept + following
            result.append(character)
        raise ValueError(f"double quote is not closed in {self.text!r}")

    def _variable(self) -> str:
        """What follows a dollar sign. A dollar that names nothing stays."""
        braced = self.text.startswith("{", self.position)
        match = _NAME.match(self.text, self.position + braced)
        if match is None:
            if braced:
                raise ValueError(f"bad substitution in {self.text!r}")
            return "$"
        self.position = match.end()
        return self._modified(match[0]) if braced else self.variables.get(match[0], "")

    def _modified(self, name: str) -> str:
        """The rest of `${name...}`."""
        operator = self._next()
        if operator == "}":
            return self.variables.get(name, "")
        value = self.variables.get(name)
        if operator == ":":
            operator = self._next()
            value = value or None
        if operator == "" or operator not in "-+?":
            raise ValueError(f"unsupported modifier in ${{{name}...}} in {self.text!r}")
        word = self._run(end="}")
        if operator == "+":
            return "" if value is None else word
        if value is None and operator == "?":
            raise ValueError(f"{name}: {word or 'is not set'}")
        return word if value is None else value
