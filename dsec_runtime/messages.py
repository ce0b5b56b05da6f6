"""Bodies of requests and answers of the edge's API that are not values of `spec` themselves."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dsec_runtime.spec import (
    USUAL_SNAPSHOT,
    ExecEnd,
    ExecSpec,
    FncallTask,
    NetworkRule,
    Problem,
    Seconds,
    SnapshotOptions,
    State,
    Tier,
)

# Chosen by the client, so that a request whose reply was lost can be sent again.
ExecId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]

JSON = "application/json"
FRAMES = "application/vnd.dsec.frames"

KEY_HEADER = "Idempotency-Key"
OWNER_HEADER = "DSec-Owner"


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command to start; with an `id` that exists already, that command is meant.

    `input` is all that its standard input gets.
    """

    spec: ExecSpec
    id: ExecId | None = None
    input: bytes | None = None


class ExecAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A command that has ended, with the end of what it wrote (at most 1 MiB of each stream)."""

    id: str
    end: ExecEnd
    stdout: bytes
    stderr: bytes
    stdout_offset: int = 0  # where `stdout` begins in all that was written
    stderr_offset: int = 0


class FncallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A task that has ended, with the results that it left; `missing` says why one is not there."""

    end: ExecEnd
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes] = {}
    missing: dict[str, str] = {}


class FncallRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task of a batch. `number` is the client's, and comes back with the answer."""

    number: int
    task: FncallTask


class FncallReply(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a task of a batch: either of the two."""

    number: int
    answer: FncallAnswer | None = None
    problem: Problem | None = None


class SnapshotRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a layer of what the sandbox wrote; `reference` is its name, as `workspace/my/it:v2`."""

    reference: str
    options: SnapshotOptions = USUAL_SNAPSHOT


class SnapshotAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The layer that was made."""

    reference: str
    digest: str


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many new sandboxes that begin with the files of this one. `labels` are laid over its."""

    count: Annotated[int, Meta(ge=1, le=1024)] = 1
    labels: dict[str, str] = {}


class PauseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How much memory a pause gave back."""

    freed_bytes: int


class NetworkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules that take the place of all others."""

    rules: tuple[NetworkRule, ...] = ()


class LabelsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Labels to set; None removes one."""

    labels: dict[str, str | None]


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take a sandbox over, if its owner is still `expected`; only one of many callers can."""

    owner: str
    expected: str | None = None


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner lives, and will say so again within `ttl_s`."""

    ttl_s: Seconds


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Until when an owner is believed to live, in seconds since 1970."""

    owner: str
    ends_s: float


class PathRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path in the sandbox. Relative ones begin at its working directory."""

    path: str


class MakeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A directory to make; `parents` makes those above too, and finds no fault in one there is."""

    path: str
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0o755
    parents: bool = True


class MoveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path to rename; a file at `target` is replaced."""

    source: str
    target: str


class RemoveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path to remove, with all below it when `recursive`."""

    path: str
    recursive: bool = False


class ModeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Permissions for a path."""

    path: str
    mode: Annotated[int, Meta(ge=0, le=0o7777)]


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to `path`, relative to what is watched.

    `written` is a file closed after writing, `changed` its mode, owner or time; `overflow`: changes
    came faster than they could be told, look for yourself.
    """

    kind: Literal[
        "created",
        "modified",
        "written",
        "removed",
        "moved_from",
        "moved_to",
        "changed",
        "overflow",
    ]
    path: str
    folder: bool = False


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a sandbox's audit log, which is its event stream too.

    `kind` is what happened: created, state, exec, exec-ended, file, port, refused, ... and `detail`
    says more of it.
    """

    time_s: float
    sandbox: str
    kind: str
    state: State | None = None
    principal: str | None = None
    detail: dict[str, str | int | float | bool | None] = {}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What the edge says of itself."""

    status: Literal["serving", "draining"]
    version: str
    pid: int
    started_s: float
    tiers: tuple[Tier, ...]
    sandboxes: dict[State, int]
    creating: int
    memory_available_bytes: int
    memory_pressure: float  # PSI: per cent of the last 10 s in which something waited for memory


class UsageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox uses now, and what its limits have stopped so far."""

    memory_bytes: int
    swap_bytes: int
    cpu_s: float
    pids: int
    disk_bytes: int
    oom_kills: int
    throttled_s: float
