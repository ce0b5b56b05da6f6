"""From the bytes of a Layerfile to its instructions: directives, comments, lines, here-documents.

Nothing is interpreted yet: an `Instruction` is a keyword and its text, with the line it starts on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from dsec_layers.builder.words import split_words
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.digest import Digest

_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.*)")
_HEREDOC = re.compile(r"[0-9]*<<(-?)((?:'[^']+'|\"[^\"]+\"|[^\s<>|&;()'\"])+)(?:[>|&;)].*)?")
_TAKES_HEREDOCS: Final = frozenset({"RUN", "COPY", "ADD"})
# Much more than anybody writes; planning takes time that grows with their square.
_MAX_BYTES: Final = 1 << 22
_MAX_INSTRUCTIONS: Final = 4000
_FRONTEND: Final = re.compile(r"(docker\.io/)?docker/dockerfile(-upstream)?(:\S*)?")


class HereDoc(msgspec.Struct, frozen=True):
    """A here-document. `body` is the text as written, `content` lacks the tabs `<<-` strips."""

    name: str
    body: str
    content: str
    expand: bool


class Instruction(msgspec.Struct, frozen=True):
    """A keyword in upper case, the joined text after it, and `file:line` of its first line.

    `written` is the keyword as it stands there; with `has_gap` an empty line stood within.
    """

    keyword: str
    text: str
    where: str
    heredocs: tuple[HereDoc, ...] = ()
    written: str = ""
    has_gap: bool = False

    def __str__(self) -> str:
        return f"{self.keyword} {self.text}"


class Layerfile(msgspec.Struct, frozen=True):
    """A parsed file. `escape` is the character that continues lines and quotes in words.

    `check` is what the directive of that name says, `check_where` its `file:line`.
    """

    instructions: tuple[Instruction, ...]
    escape: str
    digest: Digest
    check: str = ""
    check_where: str = ""


def parse(data: bytes, *, name: str = "Layerfile") -> Layerfile:
    """Parse a Layerfile; `name` stands in errors. Raises InvalidInputError with `name:line`."""
    if len(data) > _MAX_BYTES:
        raise InvalidInputError(f"larger than {_MAX_BYTES >> 20} MiB", where=f"{name}:1")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInputError("not UTF-8 text", where=f"{name}:{line}") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInputError("holds a NUL character", where=f"{name}:{line}")
    reader = _Reader(text.split("\n"), name)
    escape = reader.read_directives()
    instructions = tuple(reader.read_instructions(escape))
    return Layerfile(instructions, escape, Digest.sha256(data), *reader.check)


class _Reader:
    """A cursor over the lines of a file."""

    def __init__(self, lines: list[str], name: str) -> None:
        self.lines = lines
        self.name = name
        self.position = 0
        self.check = ("", "")
        self.gap = False

    def _where(self, index: int) -> str:
        return f"{self.name}:{index + 1}"

    def read_directives(self) -> str:
        """Consume the parser directives at the top and return the escape character."""
        seen: dict[str, str] = {}
        while match := _DIRECTIVE.fullmatch(self.lines[self.position].strip()):
            key, value = match[1].lower(), match[2]
            if key not in ("escape", "syntax", "check"):
                break
            where = self._where(self.position)
            if key in seen:
                raise InvalidInputError(f"the directive {key} appears twice", where=where)
            if key == "escape" and value not in ("\\", "`"):
                raise InvalidInputError(
                    f"invalid escape character {value!r}",
                    where=where,
                    hint="the escape character is a backslash or a backquote",
                )
            if key == "syntax" and not _FRONTEND.fullmatch(value.split("@")[0]):
                raise InvalidInputError(f"the syntax {value!r} is not supported", where=where)
            seen[key] = value
            if key == "check":
                self.check = (value, where)
            self.position += 1
            if self.position == len(self.lines):
                break
        return seen.get("escape", "\\")

    def read_instructions(self, escape: str) -> Iterator[Instruction]:
        """The instructions in order."""
        count = 0
        while self.position < len(self.lines):
            if _is_comment_or_blank(self.lines[self.position]):
                self.position += 1
                continue
            where = self._where(self.position)
            line = self._join_continued(escape).strip()
            if not line:
                continue
            keyword, *rest = line.split(maxsplit=1)
            text = rest[0] if rest else ""
            heredocs: tuple[HereDoc, ...] = ()
            if keyword.upper() in _TAKES_HEREDOCS:
                heredocs = tuple(self._read_heredocs(text, escape, where))
            count += 1
            if count > _MAX_INSTRUCTIONS:
                raise InvalidInputError(f"more than {_MAX_INSTRUCTIONS} instructions", where=where)
            yield Instruction(keyword.upper(), text, where, heredocs, keyword, self.gap)

    def _join_continued(self, escape: str) -> str:
        """Consume one logical line. Comments and empty lines inside it are dropped."""
        parts: list[str] = []
        self.gap = False
        blank = False  # one that nothing follows is no gap
        while self.position < len(self.lines):
            line = self.lines[self.position]
            self.position += 1
            if parts and _is_comment_or_blank(line):
                blank = blank or not line.strip()
                continue
            self.gap = blank
            body = line.rstrip(" \t")
            continues = body.endswith(escape) and not body.endswith(escape * 2)
            parts.append(body[:-1] if continues else line)
            if not continues:
                break
        return "".join(parts)

    def _read_heredocs(self, text: str, escape: str, where: str) -> Iterator[HereDoc]:
        for dash, word in heredoc_words(text, escape):
            name = word.replace("'", "").replace('"', "")
            yield self._read_heredoc(name, strip_tabs=bool(dash), expand=name == word, where=where)

    def _read_heredoc(self, name: str, *, strip_tabs: bool, expand: bool, where: str) -> HereDoc:
        body: list[str] = []
        content: list[str] = []
        while self.position < len(self.lines):
            line = self.lines[self.position]
            self.position += 1
            stripped = line.lstrip("\t") if strip_tabs else line
            if stripped == name:
                return HereDoc(name, "".join(body), "".join(content), expand)
            body.append(line + "\n")
            content.append(stripped + "\n")
        raise InvalidInputError(
            f"the here-document {name} has no end",
            where=where,
            hint=f"end it with a line that holds {name} alone",
        )


def heredoc_words(text: str, escape: str = "\\") -> list[tuple[str, str]]:
    """The here-documents a command announces: (dash or nothing, delimiter with its quotes)."""
    try:
        words = split_words(text, escape=escape)
    except ValueError:  # an open quote: nothing to find for us, the shell will say what it thinks
        return []
    matches = (_HEREDOC.fullmatch(word) for word in words)
    return [(match[1], match[2]) for match in matches if match]


def _is_comment_or_blank(line: str) -> bool:
    stripped = line.strip()
    return not stripped or stripped.startswith("#")
