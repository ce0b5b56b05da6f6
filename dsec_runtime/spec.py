"""The values of the runtime: what is asked of a sandbox, and what is told of it.

They are the bodies of the edge's HTTP API (JSON, by msgspec), the rows of its journal and the
arguments of the SDK. Nothing here does anything.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]

MIB = 1 << 20


class Tier(enum.StrEnum):
    """How a sandbox is isolated."""

    FNCALL = "fncall"
    CONTAINER = "container"
    MICROVM = "microvm"
    VM = "vm"


class State(enum.StrEnum):
    """Where a sandbox is in its life; LOST and STOPPED are final."""

    CREATING = "creating"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    STOPPED = "stopped"
    LOST = "lost"


class CpuClass(enum.StrEnum):
    """Latency-sensitive, or best effort: what is left over by the others."""

    LS = "ls"
    BE = "be"


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a sandbox's root file system is made of; exactly one of the three is given.

    `reference` is `env/NAME:TAG` or a layer; `layers` are references, the base first, then at most
    one workspace, then toolkits; `image` is an OCI image, imported when it is first used.
    """

    reference: str | None = None
    layers: tuple[str, ...] = ()
    image: str | None = None


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that a sandbox may use; None leaves it to the node."""

    memory_bytes: Annotated[int, Meta(ge=16 * MIB)] | None = None
    cpu_cores: Annotated[float, Meta(gt=0)] | None = None
    pids: Positive | None = None
    disk_bytes: Annotated[int, Meta(ge=8 * MIB)] | None = None
    io_weight: Annotated[int, Meta(ge=1, le=1000)] | None = None


class NetworkRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that may be reached, or not: exactly one of service, domain and cidr is given.

    `domain` may begin with `*.`; `ports` empty means all.
    """

    allow: bool = True
    service: Name | None = None
    domain: str | None = None
    cidr: str | None = None
    ports: tuple[Annotated[int, Meta(ge=1, le=65535)], ...] = ()
    protocol: Literal["tcp", "udp", "any"] = "any"


class Lifetime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a sandbox is ended without being asked; None is never (or what the node says)."""

    idle_s: Seconds | None = None
    age_s: Seconds | None = None
    paused_s: Seconds | None = None


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is asked of a sandbox at its creation."""

    tier: Tier = Tier.CONTAINER
    environment: Environment
    limits: Limits = Limits()
    cpu_class: CpuClass = CpuClass.LS
    lifetime: Lifetime = Lifetime()
    network: tuple[NetworkRule, ...] = ()
    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    hostname: Name = "sandbox"
    labels: dict[str, str] = {}
    new_privileges: bool = False
    owner: str | None = None  # whose lease ends the sandbox when it runs out


class SandboxInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the edge knows of a sandbox. Times are seconds since 1970."""

    id: str
    spec: SandboxSpec
    state: State
    digests: tuple[str, ...]  # of its layers, lowest first: what a tag meant at creation
    created_s: float
    changed_s: float
    used_s: float  # the last request that counts against idling
    ends_s: float | None = None  # when it is ended unless it is used or the limit moves
    reason: str | None = None  # why it is STOPPED or LOST
    address: str | None = None


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command. Output beyond `output_limit_bytes` ends it, or is dropped (`on_limit`).

    `keep_bytes` of the end of each stream are kept for a reader that comes later.
    """

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | None = None
    stdin: bool = False  # False is /dev/null
    pty: tuple[Positive, Positive] | None = None  # rows, columns
    timeout_s: Seconds | None = None
    output_limit_bytes: Positive | None = 64 * MIB
    on_limit: Literal["kill", "drop"] = "kill"
    keep_bytes: Annotated[int, Meta(ge=4096, le=16 * MIB)] = MIB
    merge: bool = False  # standard error into standard output


class EndCause(enum.StrEnum):
    """Why a command ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    OUTPUT_LIMIT = "output_limit"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"  # by request
    LOST = "lost"


class ExecEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `status` is 128 + signal after a signal, as a shell says it.

    With a limit, the kernel killed a process for want of memory meanwhile: it may have been another
    one than the command, which then EXITED.
    """

    cause: EndCause
    status: int
    signal: int | None = None
    stdout_bytes: int = 0  # all that was written, also what was not kept
    stderr_bytes: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    oom_process: str | None = None
    oom_limit_bytes: int | None = None


class ExecInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is known in a sandbox.

    `argv` and `started_s` are None for one that was started before the edge was; `background` says
    that it has ended and that something it started goes on.
    """

    id: str
    argv: tuple[str, ...] | None = None
    started_s: float | None = None
    running: bool = True
    background: bool = False
    end: ExecEnd | None = None


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a sandbox, as lstat(2) has it."""

    path: str
    kind: Literal["file", "directory", "symlink", "other"]
    mode: int
    uid: int
    gid: int
    size_bytes: int
    modified_ns: int
    target: str | None = None


class RefusedDestination(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sandbox wanted to go and may not, and how long ago it last did.

    `packets` are those that were recorded: not more than one a second after the first.
    """

    address: str
    protocol: str
    port: int
    packets: int = 1
    ago_s: int = 0


class RefusedName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that was not answered, and why."""

    name: str
    reason: str
    count: int


class NetworkCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox's network did since it was made; `refused` are those of ten minutes.

    What is told of destinations and names is bounded, the packets are all.
    """

    allowed_packets: int
    allowed_bytes: int
    refused_packets: int
    refused_bytes: int
    refused: tuple[RefusedDestination, ...] = ()
    refused_names: tuple[RefusedName, ...] = ()


class SnapshotOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a sandbox's changes does not become part of a layer of them (docs/residue.md).

    Residue is left out but for the rules in `keep`, and so is what the patterns of `drop` match.
    `scrub_git` leaves of git repositories only what HEAD needs, so that no later commit is in them;
    `shallow` no earlier one either.
    """

    scrub_git: bool = False
    shallow: bool = False
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


USUAL_SNAPSHOT = SnapshotOptions()
MOST_OUTPUT_BYTES = 16 * MIB


class FncallTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stateless task: files and code put into a warm sandbox, run once, and gone.

    `argv` are arguments for `code` or, without code, the command. It runs in a folder of its own,
    in which `files` lie (their paths are relative to it), and of which `results` are handed back.
    """

    environment: Environment
    argv: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    kind: str = "shell"  # how `code` is run: shell, python, or another of the edge's table
    code: str = ""
    files: dict[str, bytes] = {}
    stdin: bytes = b""
    env: dict[str, str] = {}
    timeout_s: Seconds = 60.0
    output_limit_bytes: Annotated[int, Meta(gt=0, le=MOST_OUTPUT_BYTES)] = 4 * MIB
    limits: Limits = Limits()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error on its way through the API; see `errors.from_code`."""

    code: str
    message: str
    hint: str | None = None
    detail: dict[str, str | int | float | bool | None] = {}
