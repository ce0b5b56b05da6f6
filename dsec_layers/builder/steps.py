"""The steps of a build that change files, fully expanded and ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.modes import Mode
from dsec_layers.sources.remotefile import Checksum

# Where a RUN finds its script when the here-document starts with `#!`.
SCRIPT_DIRECTORY: Final = "/dev/pipes"


# A stage by its index, a layer, a named context, or (None) the context.
Where = int | ParentLayer | str | None


def is_outside(where: Where) -> bool:
    """Whether files come from a context, so that their owners and times are no inputs."""
    return where is None or isinstance(where, str)


class Script(msgspec.Struct, frozen=True):
    """An executable file that is there only while its step runs."""

    path: str
    content: str


class BindMount(msgspec.Struct, frozen=True):
    """Files of a context, a stage or a layer, seen while the step runs.

    What is written there is lost; without `writable` nothing can be.
    """

    target: str
    source: str
    origin: Where
    writable: bool


class CacheMount(msgspec.Struct, frozen=True):
    """A folder that lasts from one run to the next. `sharing` is shared, private or locked.

    A new one is empty, or holds what `source` of a stage or layer holds; `mode` and `owner` (uid,
    gid) are those of a new one.
    """

    target: str
    id: str
    sharing: str
    mode: int
    owner: tuple[int, int]
    origin: int | ParentLayer | None
    source: str
    writable: bool


class TmpfsMount(msgspec.Struct, frozen=True):
    """An empty folder in memory."""

    target: str
    size_bytes: int | None


class SecretMount(msgspec.Struct, frozen=True):
    """A secret of the caller as the file `target`, the variable `variable`, or both."""

    id: str
    target: str | None
    variable: str | None
    required: bool
    mode: int
    owner: tuple[int, int]


StepMount = BindMount | CacheMount | TmpfsMount | SecretMount


class RunStep(msgspec.Struct, frozen=True):
    """A command. `ambient` are variables it sees which do not count as inputs (proxies)."""

    where: str
    title: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ambient: Mapping[str, str]
    cwd: str
    user: str
    network: str
    script: Script | None = None
    mounts: tuple[StepMount, ...] = ()


class InlineFile(msgspec.Struct, frozen=True):
    """A file given by a here-document."""

    name: str
    content: bytes


class Remote(msgspec.Struct, frozen=True):
    """A file on a web server, and what it must be if that is known."""

    url: str
    checksum: Checksum | None


class CopyStep(msgspec.Struct, frozen=True):
    """Files from a context, from a stage or from a layer.

    `remote` are files to fetch. Archives are unpacked with `extracts`, those that were fetched with
    `extracts_remote`.

    `destination` is absolute and keeps its trailing slash, which says that it is a directory.
    """

    where: str
    title: str
    origin: Where
    sources: tuple[str, ...]
    inline: tuple[InlineFile, ...]
    destination: str
    chown: str | None
    chmod: Mode | None
    extracts: bool = False
    extracts_remote: bool = False
    remote: tuple[Remote, ...] = ()
    excludes: tuple[str, ...] = ()
    parents: bool = False


class WorkdirStep(msgspec.Struct, frozen=True):
    """A directory that must exist; `user` owns what has to be made."""

    where: str
    title: str
    path: str
    user: str


Step = RunStep | CopyStep | WorkdirStep
