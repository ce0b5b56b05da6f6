"""What a sandbox leaves behind that is no part of the work: the rules, by name.

A pattern is compared with whole paths without a slash in front: `*` stands for a part of a name,
`**` for any number of directories. A path that matches is residue with all below it. The version
of a rule changes with its patterns, because layers attest it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.patterns import compile_pattern
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.content import Content, LocalFile
from dsec_layers.model.tree import Entry, EntryKind

_HOMES: Final = ("root", "home/*")
_ELF_CORE: Final = 4  # elf.h: ET_CORE, the 16 bits at 16
_ELF_HEAD_BYTES: Final = 18

Test = Callable[[Entry, Content | None], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of residue. With a `test` a path is residue only if that says so of its entry."""

    name: str
    reason: str
    patterns: tuple[str, ...]
    test: Test | None = None
    version: int = 1
    matcher: re.Pattern[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises InvalidInputError for a malformed pattern."""
        try:
            each = [compile_pattern(text.strip("/").encode()) for text in self.patterns]
        except ValueError as error:
            raise InvalidInputError(f"rule {self.name}: {error}") from error
        joined = b"|".join(b"(?:%s)" % pattern.pattern for pattern in each)
        object.__setattr__(self, "matcher", re.compile(joined, re.DOTALL))

    def matches(self, entry: Entry, content: Content | None) -> bool:
        """Whether the entry itself is residue; what is above it is not looked at."""
        if self.matcher.fullmatch(entry.path) is None:
            return False
        return self.test is None or self.test(entry, content)


def _is_socket(entry: Entry, _content: Content | None) -> bool:
    return entry.kind is EntryKind.SOCKET


def _is_core(entry: Entry, content: Content | None) -> bool:
    """Directories and sources are called `core` too: only the head of the file tells."""
    if entry.kind is not EntryKind.FILE or not isinstance(content, LocalFile):
        return False
    # Something else may stand there by now, such as a link or a fifo that nobody writes to.
    fd = os.open(content.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head = os.read(fd, _ELF_HEAD_BYTES)
    finally:
        os.close(fd)
    order = "little" if head[5:6] == b"\x01" else "big"
    return head.startswith(b"\x7fELF") and int.from_bytes(head[16:18], order) == _ELF_CORE  # type: ignore[arg-type]


def _in_homes(*names: str) -> tuple[str, ...]:
    return tuple(f"{home}/{name}" for home in _HOMES for name in names)


RULES: Final = (
    Rule(
        "shell-history",
        "what was typed into shells and interpreters",
        _in_homes(
            *(".*_history", ".*_hist", ".histfile", ".history", ".lesshst", ".viminfo"),
            *(".local/share/fish/fish_history", ".ipython/profile_*/history.sqlite*"),
        ),
    ),
    Rule(
        "caches",
        "programs make them again",
        (
            *_in_homes(".cache", ".npm/_cacache", ".npm/_logs", ".node-gyp", ".ccache"),
            *("**/.pytest_cache", "**/.mypy_cache", "**/.ruff_cache", "**/.ipynb_checkpoints"),
        ),
    ),
    Rule(
        "package-caches",
        "package lists and archives of the distribution",
        (
            *("var/cache/apt/**", "var/lib/apt/lists/**", "var/cache/apk/**", "var/cache/dnf/**"),
            *("var/cache/yum/**", "var/cache/debconf/*-old", "var/lib/dpkg/*-old"),
            *("var/cache/ldconfig/aux-cache", "var/cache/man/**"),
        ),
    ),
    Rule("bytecode", "Python compiles it again", ("**/__pycache__",)),
    Rule("logs", "what programs reported of the session", ("var/log/**", "**/npm-debug.log*")),
    Rule("temporary", "gone with the next start of a machine", ("tmp/**", "var/tmp/**", "run/**")),
    Rule(
        "editors",
        "swap files, backups and folder views",
        (
            *("**/.*.sw[a-p]", "**/*~", "**/.#*", "**/#*#", "**/.DS_Store", "**/Thumbs.db"),
            *("**/.netrwhist", "**/4913"),
        ),
    ),
    Rule("core-dumps", "memory of crashed programs", ("**/core", "**/core.*"), _is_core),
    Rule("ssh", "hosts that were visited, agents that ran", _in_homes(".ssh/known_hosts*")),
    Rule("sockets", "nobody listens behind them", ("**",), _is_socket),
    Rule(
        "language-servers",
        "servers and indexes of editors",
        (
            *_in_homes(".vscode-server", ".vscode-remote", ".cursor-server", ".windsurf-server"),
            *_in_homes(".local/share/nvim", ".local/state/nvim", ".config/Code/**"),
            *("**/.ccls-cache", "**/.clangd/index", "**/.metals"),
        ),
    ),
)
GIT_UNREACHABLE: Final = Rule(
    "git-unreachable",
    "loose git objects that no reference, reflog or index of the repository leads to",
    ("**/.git/objects/[0-9a-f][0-9a-f]/*",),
)
TASK: Final = "task"


class _OwnRule(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    paths: tuple[str, ...]
    reason: str = ""
    version: int = 1


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    rule: tuple[_OwnRule, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules that are on, and the names of those of this program that are off."""

    rules: tuple[Rule, ...] = RULES
    kept: tuple[str, ...] = ()

    @property
    def git_unreachable(self) -> bool:
        """Whether loose objects that nothing leads to are residue."""
        return GIT_UNREACHABLE.name not in self.kept


def choose(keep: Sequence[str] = (), drop: Sequence[str] = (), file: Path | None = None) -> RuleSet:
    """The rules of this program without `keep`, further patterns, and what a TOML file adds.

    Raises InvalidInputError for an unknown name, a malformed pattern or file; NotFoundError.
    """
    read = _read(file) if file else _File()
    kept = sorted({*keep, *read.keep})
    known = {rule.name for rule in (*RULES, GIT_UNREACHABLE)}
    for name in kept:
        if name not in known:
            raise InvalidInputError(
                f"there is no rule {name!r}", hint=f"rules are {', '.join(sorted(known))}"
            )
    own = [Rule(each.name, each.reason, each.paths, version=each.version) for each in read.rule]
    _check_names(own, known)
    patterns = (*read.drop, *drop)
    if patterns:
        own.append(Rule(TASK, "named by the task", patterns))
    return RuleSet((*(rule for rule in RULES if rule.name not in kept), *own), tuple(kept))


def _check_names(own: Iterable[Rule], known: set[str]) -> None:
    taken = {*known, TASK}
    for rule in own:
        if rule.name in taken:
            raise InvalidInputError(f"two rules have the name {rule.name!r}")
        taken.add(rule.name)


def _read(file: Path) -> _File:
    try:
        data = tomllib.loads(file.read_text("utf-8"))
        return msgspec.convert(data, _File)
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file: {file}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            str(error), where=str(file), hint="it has keep, drop, and [[rule]] with name and paths"
        ) from error
