"""Reading instructions: raw ones are checked for their form and given a meaning.

Whatever is not known is refused by name, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dsec_layers.builder.layerfile import HereDoc, Instruction, Layerfile, heredoc_words
from dsec_layers.builder.meanings import (
    Arg,
    Cmd,
    Command,
    Copy,
    Entrypoint,
    Env,
    Expose,
    From,
    Health,
    Label,
    Layer,
    Maintainer,
    Meaning,
    Run,
    Shell,
    StopSignal,
    User,
    Volume,
    Workdir,
)
from dsec_layers.builder.runmounts import parse_mount
from dsec_layers.builder.startup import HEALTH_FLAGS, healthcheck
from dsec_layers.builder.words import Flag, parse_json_list, parse_pairs, split_words, take_flags
from dsec_layers.errors import InvalidInputError


class Statement(msgspec.Struct, frozen=True):
    """An instruction and what it means."""

    instruction: Instruction
    meaning: Meaning


_REFUSED: Final[Mapping[str, str]] = {
    "ONBUILD": "write the instructions into the Layerfiles that build on this layer",
}
_REPEATED: Final = frozenset({"mount", "exclude"})
_SWITCHES: Final = frozenset({"link", "parents", "unpack"})
_STAGE_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Text(msgspec.Struct, frozen=True):
    """What a reader of one instruction works on: flags by name, and the text after them.

    `flags` has those that are given once, `lists` all values of those that may be repeated.
    """

    text: str
    flags: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...]]
    heredocs: tuple[HereDoc, ...]
    escape: str


def interpret(layerfile: Layerfile) -> tuple[Statement, ...]:
    """The meaning of every instruction. Raises InvalidInputError with `file:line` and a hint."""
    return tuple(
        Statement(instruction, _interpret(instruction, layerfile.escape))
        for instruction in layerfile.instructions
    )


def _interpret(instruction: Instruction, escape: str) -> Meaning:
    keyword, where = instruction.keyword, instruction.where
    if keyword in _REFUSED:
        raise InvalidInputError(f"{keyword} is not supported", where=where, hint=_REFUSED[keyword])
    if keyword not in _READERS:
        import difflib  # few Dockerfiles need it

        close = difflib.get_close_matches(keyword, _READERS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(_READERS))}"
        raise InvalidInputError(f"unknown instruction {keyword}", where=where, hint=hint)
    known, read = _READERS[keyword]
    flags, text = take_flags(instruction.text)
    try:
        once, lists = _check_flags(keyword, known, flags)
        return read(_Text(text.strip(), once, lists, instruction.heredocs, escape))
    except ValueError as error:
        raise InvalidInputError(f"{keyword}: {error}", where=where) from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{keyword}: {error}", where=where, hint=error.hint) from error


def _check_flags(
    keyword: str, known: frozenset[str], flags: list[Flag]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    once: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    for flag in flags:
        if flag.name not in known:
            takes = ", ".join(f"--{name}" for name in sorted(known))
            raise InvalidInputError(
                f"the option --{flag.name} is not supported",
                hint=f"{keyword} takes {takes}" if takes else f"{keyword} takes no options",
            )
        value = flag.value or ("true" if flag.name in _SWITCHES else "")
        if flag.name in once:
            raise ValueError(f"--{flag.name} is given twice")
        if not value:
            raise ValueError(f"--{flag.name} needs a value: --{flag.name}=...")
        if flag.name in _REPEATED:
            lists.setdefault(flag.name, []).append(value)
        elif flag.name in _SWITCHES and value not in ("true", "false"):
            raise ValueError(f"--{flag.name} is {value!r}, not true or false")
        else:
            once[flag.name] = value
    return once, {name: tuple(values) for name, values in lists.items()}


def _layer(given: _Text) -> Layer:
    words = given.text.split()
    if len(words) != 2:
        raise InvalidInputError(
            "needs a kind and a name", hint="write LAYER <base|workspace|toolkit> <name>"
        )
    return Layer(words[0], words[1])


def _from(given: _Text) -> From:
    words = given.text.split()
    platform = given.flags.get("platform")
    if len(words) == 1:
        return From(words[0], None, platform)
    if len(words) != 3 or words[1].upper() != "AS":
        raise InvalidInputError("malformed", hint="write FROM <parent> or FROM <parent> AS <name>")
    name = words[2].lower()
    if not _STAGE_NAME.fullmatch(name):
        raise InvalidInputError(
            f"invalid stage name {words[2]!r}",
            hint="a stage name is a letter, then letters, digits, '.', '_' and '-'",
        )
    return From(words[0], name, platform)


def _arg(given: _Text) -> Arg:
    words = split_words(given.text, escape=given.escape)
    if not words:
        raise ValueError("needs a name")
    pairs: list[tuple[str, str | None]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise ValueError(f"invalid name {name!r}")
        pairs.append((name, value if equals else None))
    return Arg(tuple(pairs))


def _env(given: _Text) -> Env:
    return Env(tuple(parse_pairs(given.text, escape=given.escape)))


def _label(given: _Text) -> Label:
    return Label(tuple(parse_pairs(given.text, escape=given.escape)))


def _command(given: _Text) -> Command:
    words = parse_json_list(given.text)
    if words is not None:
        return Command(words, for_shell=False)
    if not given.text:
        raise ValueError("needs a command")
    return Command((given.text,), for_shell=True, heredocs=given.heredocs)


def _run(given: _Text) -> Run:
    network = given.flags.get("network", "default")
    if network not in ("default", "host", "none"):
        raise InvalidInputError(
            f"--network={network} is not supported",
            hint="the network is default, host or none",
        )
    command = _command(given)
    if not command.words or not command.words[0]:
        raise ValueError("needs a command")
    mounts = tuple(map(parse_mount, given.lists.get("mount", ())))
    return Run(command, "none" if network == "none" else "host", mounts)


def _copy(given: _Text) -> Copy:
    words = parse_json_list(given.text)
    if words is None:
        words = tuple(given.text.split())
    announced = len(heredoc_words(given.text, given.escape)) if given.heredocs else 0
    sources = tuple(word for word in words if not (announced and word.startswith("<<")))
    if len(words) < 2 or len(sources) == 0:
        raise InvalidInputError(
            "needs sources and a destination", hint="write COPY <source>... <destination>"
        )
    if any("/" in heredoc.name or heredoc.name in (".", "..") for heredoc in given.heredocs):
        raise ValueError("a here-document becomes a file, and its name is no file name")
    origin = given.flags.get("from")
    if origin and given.heredocs:
        raise ValueError("here-documents and --from exclude each other")
    return Copy(
        sources=sources[:-1],
        inline=given.heredocs,
        destination=sources[-1],
        origin=origin,
        chown=given.flags.get("chown"),
        chmod=given.flags.get("chmod"),
        excludes=given.lists.get("exclude", ()),
        parents=given.flags.get("parents") == "true",
    )


def _add(given: _Text) -> Copy:
    copy = _copy(given)
    unpack = given.flags.get("unpack")
    return msgspec.structs.replace(
        copy,
        is_add=True,
        unpack=None if unpack is None else unpack == "true",
        checksum=given.flags.get("checksum"),
    )


def _workdir(given: _Text) -> Workdir:
    return Workdir(_single(given, "a path"))


def _user(given: _Text) -> User:
    return User(_single(given, "a user"))


def _shell(given: _Text) -> Shell:
    words = parse_json_list(given.text)
    if not words:
        raise InvalidInputError("needs a JSON list", hint='write SHELL ["/bin/bash", "-c"]')
    return Shell(words)


def _volume(given: _Text) -> Volume:
    words = parse_json_list(given.text)
    paths = tuple(given.text.split()) if words is None else words
    if not paths or not all(paths):
        raise ValueError("needs a path")
    return Volume(paths)


def _health(given: _Text) -> Health:
    kind, *rest = given.text.split(maxsplit=1) or [""]
    if kind.upper() == "NONE" and not rest and not given.flags:
        return Health(healthcheck(("NONE",), {}))
    if kind.upper() != "CMD":
        raise InvalidInputError(
            "malformed", hint="write HEALTHCHECK CMD <command> or HEALTHCHECK NONE"
        )
    command = _command(msgspec.structs.replace(given, text="".join(rest)))
    if not command.words or not command.words[0]:
        raise ValueError("needs a command")
    form = "CMD-SHELL" if command.for_shell else "CMD"
    return Health(healthcheck((form, *command.words), given.flags))


def _single(given: _Text, what: str) -> str:
    if not given.text:
        raise ValueError(f"needs {what}")
    return given.text


_COPY_FLAGS: Final = frozenset({"chown", "chmod", "exclude", "link", "parents"})
_NO_FLAGS: Final[frozenset[str]] = frozenset()
_READERS: Final[Mapping[str, tuple[frozenset[str], Callable[[_Text], Meaning]]]] = {
    "LAYER": (_NO_FLAGS, _layer),
    "FROM": (frozenset({"platform"}), _from),
    "ARG": (_NO_FLAGS, _arg),
    "ENV": (_NO_FLAGS, _env),
    "LABEL": (_NO_FLAGS, _label),
    "RUN": (frozenset({"network", "mount"}), _run),
    "COPY": (_COPY_FLAGS | {"from"}, _copy),
    "ADD": (_COPY_FLAGS | {"checksum", "unpack"}, _add),
    "WORKDIR": (_NO_FLAGS, _workdir),
    "USER": (_NO_FLAGS, _user),
    "SHELL": (_NO_FLAGS, _shell),
    "CMD": (_NO_FLAGS, lambda given: Cmd(_command(given))),
    "EXPOSE": (_NO_FLAGS, lambda given: Expose(tuple(_single(given, "a port").split()))),
    "VOLUME": (_NO_FLAGS, _volume),
    "STOPSIGNAL": (_NO_FLAGS, lambda given: StopSignal(_single(given, "a signal"))),
    "HEALTHCHECK": (HEALTH_FLAGS, _health),
    "MAINTAINER": (_NO_FLAGS, lambda given: Maintainer(_single(given, "a name"))),
    "ENTRYPOINT": (_NO_FLAGS, lambda given: Entrypoint(_command(given))),
}
