"""What each instruction of a Layerfile says: values not yet expanded."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dsec_layers.builder.layerfile import HereDoc
from dsec_layers.model.runconfig import Healthcheck


class Layer(msgspec.Struct, frozen=True):
    """`LAYER <kind> <name>`."""

    kind: str
    name: str


class From(msgspec.Struct, frozen=True):
    """`FROM [--platform=...] <parent> [AS <name>]`; the name is in lower case."""

    parent: str
    name: str | None
    platform: str | None = None


class Arg(msgspec.Struct, frozen=True):
    """`ARG <name>[=<default>] ...`."""

    pairs: tuple[tuple[str, str | None], ...]


class Env(msgspec.Struct, frozen=True):
    """`ENV <name>=<value> ...`."""

    pairs: tuple[tuple[str, str], ...]


class Label(msgspec.Struct, frozen=True):
    """`LABEL <name>=<value> ...`."""

    pairs: tuple[tuple[str, str], ...]


class Command(msgspec.Struct, frozen=True):
    """A command: the words of the exec form, or one word (and its here-documents) for the shell."""

    words: tuple[str, ...]
    for_shell: bool
    heredocs: tuple[HereDoc, ...] = ()


class Mount(msgspec.Struct, frozen=True):
    """`RUN --mount`: its type, the stage or layer it shows, and the other options as written."""

    kind: str
    origin: str | None
    options: Mapping[str, str]


class Run(msgspec.Struct, frozen=True):
    """`RUN`; `network` is host or none."""

    command: Command
    network: str
    mounts: tuple[Mount, ...] = ()


class Copy(msgspec.Struct, frozen=True):
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


class Workdir(msgspec.Struct, frozen=True):
    """`WORKDIR <path>`."""

    path: str


class User(msgspec.Struct, frozen=True):
    """`USER <user>[:<group>]`."""

    user: str


class Shell(msgspec.Struct, frozen=True):
    """`SHELL ["program", "argument"]`."""

    words: tuple[str, ...]


class Cmd(msgspec.Struct, frozen=True):
    """`CMD`."""

    command: Command


class Entrypoint(msgspec.Struct, frozen=True):
    """`ENTRYPOINT`."""

    command: Command


class Expose(msgspec.Struct, frozen=True):
    """`EXPOSE <port>...`."""

    ports: tuple[str, ...]


class Volume(msgspec.Struct, frozen=True):
    """`VOLUME <path>...`."""

    paths: tuple[str, ...]


class StopSignal(msgspec.Struct, frozen=True):
    """`STOPSIGNAL <signal>`."""

    signal: str


class Health(msgspec.Struct, frozen=True):
    """`HEALTHCHECK`, in which no variables are replaced."""

    check: Healthcheck


class Maintainer(msgspec.Struct, frozen=True):
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
