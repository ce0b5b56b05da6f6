"""The first line of a script (`execve(2)`)."""

from __future__ import annotations

import posixpath
from typing import Final, NamedTuple

HEAD_BYTES: Final = 256  # as much as the kernel looks at


class Shebang(NamedTuple):
    """The interpreter, and for `env` the program that it looks for in PATH, when it is a name."""

    interpreter: bytes
    program: bytes | None = None


def parse(head: bytes) -> Shebang | None:
    """The shebang of a file that begins with `head`; None without one, or with no whole path."""
    if not head.startswith(b"#!"):
        return None
    words = head[2:HEAD_BYTES].partition(b"\n")[0].split()
    if not words or not words[0].startswith(b"/"):
        return None
    if posixpath.basename(words[0]) != b"env":
        return Shebang(words[0])
    rest = [word for word in words[1:] if not word.startswith(b"-") and b"=" not in word]
    return Shebang(words[0], rest[0] if rest and b"/" not in rest[0] else None)
