"""What client and daemon say to each other: a canonical JSON object a line, request and answer.

An answer is `{"ok": ...}` or `{"error": {"kind": class name in errors.py, "message": ..., "hint":
...}}`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dsec_layers import errors
from dsec_layers.errors import DaemonError, DsecError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import Descriptor

MAX_LINE_BYTES = 4 << 20
T = TypeVar("T")


class Start(msgspec.Struct, frozen=True):
    """Somebody mounts the layers of `environment`, a digest, all of them under one `id`.

    What a trace says that it reads is fetched ahead, at most `prefetch_bytes` of it; None stands
    for the daemon's own limit, and 0 for nothing.
    """

    id: str
    environment: str
    prefetch_bytes: int | None = None


class Wanted(msgspec.Struct, frozen=True):
    """The layer with manifest `layer`; its blobs come from `stores` (URLs, best first)."""

    layer: Descriptor
    stores: tuple[str, ...]


class Attach(msgspec.Struct, frozen=True, tag="attach", tag_field="op"):
    """Serve all these layers."""

    layers: tuple[Wanted, ...]
    start: Start | None = None


class Detach(msgspec.Struct, frozen=True, tag="detach", tag_field="op"):
    """Stop serving the layers with these digests."""

    digests: tuple[str, ...]


class Ping(msgspec.Struct, frozen=True, tag="ping", tag_field="op"):
    """Ask whether anybody is there."""


class GetStatus(msgspec.Struct, frozen=True, tag="status", tag_field="op"):
    """Ask who is there."""


class GetStats(msgspec.Struct, frozen=True, tag="stats", tag_field="op"):
    """Ask for the counters."""


class GetMetrics(msgspec.Struct, frozen=True, tag="metrics", tag_field="op"):
    """Ask for the counters as Prometheus reads them."""


class Evict(msgspec.Struct, frozen=True, tag="evict", tag_field="op"):
    """Drop every cached chunk."""


class SaveTraces(msgspec.Struct, frozen=True, tag="save-traces", tag_field="op"):
    """Write down what has been recorded of accesses until now."""


class Stop(msgspec.Struct, frozen=True, tag="stop", tag_field="op"):
    """End the daemon.

    With attached layers it refuses, unless `handover` promises a successor or `force` is set.
    """

    handover: bool = False
    force: bool = False


Request = Attach | Detach | Ping | GetStatus | GetStats | GetMetrics | Evict | SaveTraces | Stop


class Attached(msgspec.Struct, frozen=True):
    """A served layer: its digest, and the file that EROFS takes as its device.

    The size of the file is a multiple of 4096.
    """

    digest: str
    path: str
    size_bytes: int


class AllAttached(msgspec.Struct, frozen=True):
    """The layers of an `Attach`, in its order."""

    layers: tuple[Attached, ...]


class Done(msgspec.Struct, frozen=True):
    """Nothing more to say. `changed` is False when there was nothing to do."""

    changed: bool = True


class Status(msgspec.Struct, frozen=True):
    """The running daemon. `generation` counts the daemons that have served this mount."""

    pid: int
    version: str
    generation: int
    uptime_s: float
    mount: str
    layers: tuple[Attached, ...]


class Counts(msgspec.Struct, frozen=True):
    """Counters since the daemon started.

    Bytes from stores are as stored (compressed), all others are plain. `kernel_*` is what the
    kernel asked for; it does not ask again for what its page cache holds. A hit is a chunk found in
    memory or in the cache on disk.
    """

    kernel_reads: int = 0
    kernel_bytes: int = 0
    store_requests: int = 0
    store_bytes: int = 0
    fetched_chunks: int = 0
    fetched_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_bytes: int = 0
    corrupt_entries: int = 0
    uncached_chunks: int = 0
    retries: int = 0
    errors: int = 0


class LayerStats(msgspec.Struct, frozen=True):
    """One attached layer; `in_flight` are chunks."""

    digest: str
    device_bytes: int
    chunks: int
    counts: Counts
    in_flight: int = 0


class CacheStats(msgspec.Struct, frozen=True):
    """The chunk cache on disk and in memory.

    `disk_bytes` is None until the first scan of the cache has ended.
    """

    disk_bytes: int | None
    disk_limit_bytes: int
    memory_bytes: int
    memory_limit_bytes: int
    evicted_chunks: int


class StoreStats(msgspec.Struct, frozen=True):
    """One store that was asked for something.

    `state` is that of its breaker, which has opened `openings` times; requests that were `refused`
    then were not made. `in_flight` are requests, those that are overdue and `stuck` among them.
    `errors` are by class, and `timeout`.
    """

    url: str
    state: str
    openings: int
    requests: int
    answered_bytes: int
    refused: int
    in_flight: int
    stuck: int
    errors: dict[str, int]


class Stats(msgspec.Struct, frozen=True):
    """Everything counted, layers in order of their digest.

    `totals` are since the daemon started, of layers too that are detached by now. `read_errors`
    counts reads that failed, by class.
    """

    layers: tuple[LayerStats, ...]
    totals: Counts
    cache: CacheStats
    stores: tuple[StoreStats, ...] = ()
    read_errors: dict[str, int] = {}


class Metrics(msgspec.Struct, frozen=True):
    """The counters in Prometheus's text format."""

    text: str


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error on its way to the client."""

    kind: str
    message: str
    hint: str | None = None


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: msgspec.Raw = msgspec.Raw()
    error: Failure | None = None


_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, DsecError)
}
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


def encode_request(request: Request) -> bytes:
    """One line."""
    return canonical.encode(request) + b"\n"


def decode_request(line: bytes) -> Request:
    """Parse a line. Raises DaemonError when it is not a request."""
    try:
        return _requests.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DaemonError(f"not a request: {error}") from error


def encode_answer(result: msgspec.Struct | Exception) -> bytes:
    """One line for a result or an error; errors of other kinds than DsecError go as DaemonError."""
    if not isinstance(result, Exception):
        return canonical.encode(_Answer(ok=msgspec.Raw(canonical.encode(result)))) + b"\n"
    if isinstance(result, DsecError):
        failure = Failure(type(result).__name__, result.message, result.hint)
    else:
        failure = Failure(DaemonError.__name__, f"{type(result).__name__}: {result}")
    return canonical.encode(_Answer(error=failure)) + b"\n"


def decode_answer(line: bytes, type_: type[T]) -> T:
    """The result in a line; an error in it is raised as the class it was."""
    answer = canonical.decode(line, _Answer, what="answer of the daemon")
    if answer.error is not None:
        kind = _ERRORS.get(answer.error.kind, DaemonError)
        raise kind(answer.error.message, hint=answer.error.hint)
    return canonical.decode(bytes(answer.ok), type_, what="answer of the daemon")
