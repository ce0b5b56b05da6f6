"""How code is run, by the name of its kind: two that are built in, and those of the operator.

    <home>/edge/kinds.toml

    [ruby]
    inline = ["ruby", "-e", "{code}", "--"]
    script = ["ruby", "{file}"]
    name = "main.rb"

`{code}` stands for the code itself and `{file}` for a file that holds it; `inline` may be left out,
and is used for code that fits into an argument. The arguments of the task follow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dsec_runtime.errors import InvalidRequestError

_Words = Annotated[tuple[str, ...], Meta(min_length=1)]
_INLINE_BYTES: Final = 100 << 10  # an argument has at most 128 KiB (MAX_ARG_STRLEN of Linux)
FILE: Final = "kinds.toml"


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`name` is that of the file which holds the code; `env` is laid under that of the task."""

    script: _Words
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$")]
    inline: _Words | None = None
    env: dict[str, str] = {}

    def is_inline(self, code: str) -> bool:
        """Whether the code needs no file."""
        if self.inline is None or "\0" in code:
            return False
        return len(code.encode(errors="replace")) <= _INLINE_BYTES

    def argv(self, code: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """The command for some code, which lies in its file unless it `is_inline`."""
        words = self.inline if self.inline and self.is_inline(code) else self.script
        filled = (word.replace("{file}", f"./{self.name}") for word in words)
        return (*(word.replace("{code}", code) for word in filled), *arguments)


BUILT_IN: Final[Mapping[str, Kind]] = {
    "shell": Kind(
        inline=("/bin/sh", "-c", "{code}", "sh"), script=("/bin/sh", "{file}"), name="main.sh"
    ),
    "python": Kind(
        inline=("python3", "-c", "{code}"),
        script=("python3", "{file}"),
        name="main.py",
        env={"PYTHONDONTWRITEBYTECODE": "1"},  # it would be written into the environment
    ),
}


class Kinds:
    """The table, read anew when its file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._table = dict(BUILT_IN)

    def find(self, name: str) -> Kind:
        """A kind by its name. Raises InvalidRequestError."""
        self._refresh()
        try:
            return self._table[name]
        except KeyError:
            known = ", ".join(sorted(self._table))
            raise InvalidRequestError(
                f"there is no kind {name!r} of code: this edge knows {known}",
                hint=f"an operator adds one to {self._path.name} of the edge",
            ) from None

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._table = None, dict(BUILT_IN)
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen == self._seen:
            return
        try:
            read = tomllib.loads(self._path.read_text())
            own = msgspec.convert(read, dict[str, Kind])
        except (ValueError, msgspec.ValidationError) as error:
            raise InvalidRequestError(f"{self._path}: {error}") from error
        self._table = {**BUILT_IN, **own}
        self._seen = seen
