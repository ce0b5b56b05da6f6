"""What each instruction of a Layerfile says: values not yet expanded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsec_layers.builder.layerfile import HereDoc
from dsec_layers.model.runconfig import Healthcheck


@dataclass(frozen=True, slots=True)
class Layer:
    """`LAYER <kind> <name>`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class From:
    """`FROM [--platform=...] <parent> [AS <name>]`; the name is in lower case."""

    parent: str
    name: str | None
    platform: str | None = None


@dataclass(frozen=True, slots=True)
class Arg:
    """`ARG <name>[=<default>] ...`."""

    pairs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Env:
    """`ENV <name>=<value> ...`."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Label:
    """`LABEL <name>=<value> ...`."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the words of the exec form, or one word (and its here-documents) for the shell."""

    words: tuple[str, ...]
    for_shell: bool
    heredocs: tuple[HereDoc, ...] = ()


@dataclass(frozen=True, slots=True)
class Mount:
    """`RUN --mount`: its type, the stage or layer it shows, and the other options as written."""

    kind: str
    origin: str | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """`RUN`; `network` is host or none."""

    command: Command
    network: str
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """`COPY` and `ADD`. `inline`: sources given as here-documents; `origin`: a stage or layer.

    `is_add` also takes URLs in `sources`, which `checksum` is of; `unpack` is what ADD was told of
    archives, None is the default.
    """

    sources: tuple[str, ...]
    inline: tuple[HereDoc, ...]
    destination: str
    origin: str | None
    chown: str | None
    chmod: str | None
    is_add: bool = False
    unpack: bool | None = None
    checksum: str | None = None
    excludes: tuple[str, ...] = ()
    parents: bool = False


@dataclass(frozen=True, slots=True)
class Workdir:
    """`WORKDIR <path>`."""

    path: str


@dataclass(frozen=True, slots=True)
class User:
    """`USER <user>[:<group>]`."""

    user: str


@dataclass(frozen=True, slots=True)
class Shell:
    """`SHELL ["program", "argument"]`."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cmd:
    """`CMD`."""

    command: Command


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """`ENTRYPOINT`."""

    command: Command


@dataclass(frozen=True, slots=True)
class Expose:
    """`EXPOSE <port>...`."""

    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Volume:
    """`VOLUME <path>...`."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopSignal:
    """`STOPSIGNAL <signal>`."""

    signal: str


@dataclass(frozen=True, slots=True)
class Health:
    """`HEALTHCHECK`, in which no variables are replaced."""

    check: Healthcheck


@dataclass(frozen=True, slots=True)
class Maintainer:
    """`MAINTAINER <name>`, in which no variables are replaced."""

    name: str


Meaning = (
    Layer
    | From
    | Arg
    | Env
    | Label
    | Run
    | Copy
    | Workdir
    | User
    | Shell
    | Cmd
    | Entrypoint
    | Expose
    | Volume
    | StopSignal
    | Health
    | Maintainer
)
