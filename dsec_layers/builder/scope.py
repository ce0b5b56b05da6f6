"""What the instructions of a stage see and set: variables, directory, user, shell, labels."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from dsec_layers.builder.expand import expand
from dsec_layers.builder.meanings import (
    Arg,
    Cmd,
    Command,
    Entrypoint,
    Env,
    Expose,
    Health,
    Label,
    Maintainer,
    Meaning,
    Shell,
    StopSignal,
    User,
    Volume,
    Workdir,
)
from dsec_layers.builder.startup import ports, signal_name
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.linux.ocispec import DEFAULT_PATH
from dsec_layers.model.runconfig import RunConfig

AUTHORS_LABEL: Final = "org.opencontainers.image.authors"
DEFAULT_SHELL: Final = ("/bin/sh", "-c")
EPOCH_VARIABLE: Final = "SOURCE_DATE_EPOCH"
# Of one kind together. The kernel gives a program at most 2 MiB, with its arguments.
_MAX_VARIABLES: Final = 1 << 20
# Arguments that a RUN sees without an ARG line and that do not count as inputs.
AMBIENT_ARGUMENTS: Final = frozenset(
    variant
    for name in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
    for variant in (name, name.upper())
)


def platform_arguments() -> dict[str, str]:
    """The arguments that tell of the machine, as a Dockerfile names them."""
    architecture = oci_architecture()
    values = {
        "PLATFORM": f"linux/{architecture}",
        "OS": "linux",
        "ARCH": architecture,
        "VARIANT": "",
    }
    return {side + name: value for side in ("TARGET", "BUILD") for name, value in values.items()}


class Arguments(msgspec.Struct, frozen=True):
    """Where an ARG line finds a value: given by the caller, else declared before the first FROM."""

    given: Mapping[str, str]
    declared: Mapping[str, str]

    def value(self, name: str, default: str | None) -> str | None:
        """The value of an ARG line, None when nobody has one."""
        if name in self.given:
            return self.given[name]
        return default if default is not None else self.declared.get(name)


class Scope(msgspec.Struct, frozen=True):
    """The state between instructions: `own` is set by this Layerfile, `inherited` lies below."""

    inherited: RunConfig
    own: RunConfig = msgspec.field(default_factory=RunConfig)
    variables: Mapping[str, str] = {}
    escape: str = "\\"
    command_is_own: bool = False

    @classmethod
    def over(cls, inherited: RunConfig, escape: str) -> Scope:
        """The scope at the start of a stage on a layer or on nothing."""
        env = {"PATH": DEFAULT_PATH, **inherited.env}
        return cls(msgspec.structs.replace(inherited, env=env), escape=escape)

    def child(self) -> Scope:
        """The scope at the start of a stage that continues this one."""
        return msgspec.structs.replace(self, command_is_own=False)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables, without arguments."""
        return {**self.inherited.env, **self.own.env}

    @property
    def visible(self) -> dict[str, str]:
        """All variables; ENV wins over ARG."""
        return {**self.variables, **self.env}

    @property
    def workdir(self) -> str:
        """The absolute working directory."""
        return self.own.workdir or self.inherited.workdir or "/"

    @property
    def user(self) -> str:
        """The user as written, `0` when nobody said."""
        return self.own.user or self.inherited.user or "0"

    @property
    def shell(self) -> tuple[str, ...]:
        """The words before a shell command."""
        return self.own.shell or self.inherited.shell or DEFAULT_SHELL

    def expand(self, text: str) -> str:
        """Replace variables. Raises ValueError."""
        return expand(text, self.visible, escape=self.escape)

    def absolute(self, path: str) -> str:
        """`path` from the working directory on, normalised."""
        return "/" + posixpath.normpath(posixpath.join(self.workdir, path)).lstrip("/")

    def command_words(self, command: Command) -> tuple[str, ...]:
        """The words to execute."""
        return (*self.shell, *command.words) if command.for_shell else command.words

    def after(self, meaning: Meaning, arguments: Arguments) -> Scope:
        """The scope after an instruction, the same when it sets nothing. Raises ValueError."""
        own = self.own
        match meaning:
            case Arg():
                declared = declare(meaning, self, arguments)
                return msgspec.structs.replace(
                    self, variables=bounded({**self.variables, **declared}.items())
                )
            case Cmd(command):
                changed = msgspec.structs.replace(own, cmd=self.command_words(command))
                return msgspec.structs.replace(self, own=changed, command_is_own=True)
            case Entrypoint(command):
                cmd = own.cmd if self.command_is_own else None
                entrypoint = self.command_words(command)
                own = msgspec.structs.replace(own, entrypoint=entrypoint, cmd=cmd)
            case Env(pairs):
                env = bounded({**own.env, **self._expand_pairs(pairs)}.items())
                own = msgspec.structs.replace(own, env=env)
            case Label(pairs):
                labels = bounded({**own.labels, **self._expand_pairs(pairs)}.items())
                own = msgspec.structs.replace(own, labels=labels)
            case Workdir(path):
                own = msgspec.structs.replace(own, workdir=self.absolute(self.expand(path)))
            case User(user):
                expanded = self.expand(user)
                if not expanded:
                    raise ValueError(f"{user!r} is empty here")
                own = msgspec.structs.replace(own, user=expanded)
            case Shell(words):
                own = msgspec.structs.replace(own, shell=words)
            case _:
                own = self._for_engines(meaning)
        return msgspec.structs.replace(self, own=own)

    def _for_engines(self, meaning: Meaning) -> RunConfig:
        """What is set after an instruction that concerns only containers started elsewhere."""
        own = self.own
        match meaning:
            case Expose(words):
                found = ports(part for word in words for part in self.expand(word).split())
                return msgspec.structs.replace(own, ports=tuple(sorted({*own.ports, *found})))
            case Volume(paths):
                volumes = tuple(sorted({*own.volumes, *map(self.expand, paths)}))
                if "" in volumes:
                    raise ValueError("a path is empty here")
                return msgspec.structs.replace(own, volumes=volumes)
            case StopSignal(signal):
                return msgspec.structs.replace(own, stop_signal=signal_name(self.expand(signal)))
            case Health(check):
                return msgspec.structs.replace(own, healthcheck=check)
            case Maintainer(name):
                labels = {**own.labels, AUTHORS_LABEL: name}
                return msgspec.structs.replace(own, labels=labels)
        return own

    def _expand_pairs(self, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
        visible = self.visible  # once: there may be many pairs, and many variables
        words = ([expand(word, visible, escape=self.escape) for word in pair] for pair in pairs)
        return bounded((name, value) for name, value in words)


def declare(meaning: Arg, scope: Scope, arguments: Arguments) -> dict[str, str]:
    """The variables that an ARG line sets. Raises ValueError."""
    visible = scope.visible

    def values() -> Iterator[tuple[str, str]]:
        for name, default in meaning.pairs:
            if default is not None:
                default = expand(default, visible, escape=scope.escape)
            value = arguments.value(name, default)
            if value is not None:
                yield name, value

    return bounded(values())


def bounded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The pairs, as long as a program can be given them. Raises ValueError."""
    found: dict[str, str] = {}
    length = 0
    for name, value in pairs:
        length += len(name) + len(value)
        if length > _MAX_VARIABLES:
            raise ValueError(f"the variables are longer than {_MAX_VARIABLES} characters together")
        found[name] = value
    return found
