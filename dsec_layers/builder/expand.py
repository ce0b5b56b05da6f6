"""Variables in a Layerfile: `$x`, `${x}`, `${x:-word}`, quotes and escapes, as in a Dockerfile.

Parts of a value are taken away by `${x#pattern}`, `##`, `%` and `%%`, or replaced by
`${x/pattern/word}` and `//`. An unset variable is empty. Words and patterns may hold variables;
what is quoted in a pattern means itself. Errors are ValueError: only the caller knows the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dsec_layers.builder.shellpattern import literal, substitute, trim

# Of what variables put into one text. Each could hold the one before twice.
_MAX_INSERTED: Final = 1 << 20
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
        self.in_pattern = False
        self.inserted = 0
        self.ended_by = ""

    def whole(self) -> str:
        """Expand all of the text."""
        try:
            return self._run(end="")
        except RecursionError:
            raise ValueError("variables stand in one another too deeply") from None

    def _run(self, end: str) -> str:
        """Expand up to and over a character of `end`, or to the end of the text when it is empty.

        `ended_by` is the character.
        """
        result: list[str] = []
        while self.position < len(self.text):
            character = self._next()
            if character in end:
                self.ended_by = character
                return "".join(result)
            if character == "$":
                result.append(self._variable())
            elif character == self.escape:
                result.append(self._meant(self._escaped()))
            elif character in "'\"" and self.quotes:
                quoted = self._single_quoted if character == "'" else self._double_quoted
                result.append(self._meant(quoted()))
            else:
                result.append(self._meant(character) if character == "\\" else character)
        if end:
            raise ValueError(f"missing {end[-1]!r} in {self.text!r}")
        return "".join(result)

    def _meant(self, text: str) -> str:
        """Text that means itself, also in a pattern."""
        return literal(text) if self.in_pattern else text

    def _inner(self, end: str, *, in_pattern: bool) -> str:
        """A word or pattern inside of braces."""
        before, self.in_pattern = self.in_pattern, in_pattern
        try:
            return self._run(end)
        finally:
            self.in_pattern = before

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
        value = self._modified(match[0]) if braced else self.variables.get(match[0], "")
        self.inserted += len(value)
        if self.inserted > _MAX_INSERTED:
            raise ValueError(f"variables make the text longer than {_MAX_INSERTED} characters")
        return value

    def _modified(self, name: str) -> str:
        """The rest of `${name...}`."""
        operator = self._next()
        value = self.variables.get(name)
        if operator == "}":
            return value or ""
        if operator in ("#", "%"):
            return self._trimmed(value or "", operator)
        if operator == "/":
            return self._replaced(value or "")
        return self._alternative(name, value, operator)

    def _trimmed(self, value: str, operator: str) -> str:
        longest = self._took(operator)
        return trim(
            value, self._inner("}", in_pattern=True), at_end=operator == "%", longest=longest
        )

    def _replaced(self, value: str) -> str:
        every = self._took("/")
        pattern = self._inner("/}", in_pattern=True)
        word = self._inner("}", in_pattern=False) if self.ended_by == "/" else ""
        return substitute(value, pattern, word, every=every)

    def _took(self, character: str) -> bool:
        """Whether the next character is this one, which is then consumed."""
        taken = self.text.startswith(character, self.position)
        self.position += taken
        return taken

    def _alternative(self, name: str, value: str | None, operator: str) -> str:
        """`${name-word}` and the like, maybe after a colon, to which empty is unset."""
        if operator == ":":
            operator = self._next()
            value = value or None
        if operator == "" or operator not in "-+?":
            raise ValueError(f"unsupported modifier in ${{{name}...}} in {self.text!r}")
        word = self._inner("}", in_pattern=False)
        if operator == "+":
            return "" if value is None else word
        if value is None and operator == "?":
            raise ValueError(f"{name}: {word or 'is not set'}")
        return word if value is None else value
