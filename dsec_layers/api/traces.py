"""Access traces: those of this home, and those kept beside environments in stores.

A trace only says what is worth fetching early, so none is trusted: what is fetched is checked as
ever, and what a trace asks for is bounded.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.errors import (
    CorruptError,
    DaemonError,
    DsecError,
    InvalidInputError,
    NotFoundError,
)
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.protocol import Start
from dsec_layers.lazyfs.traces import TraceFiles
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.trace import (
    MAX_STORED_BYTES,
    TRACE_ARTIFACT,
    TRACE_TYPE,
    LayerTrace,
    Trace,
    merge,
)
from dsec_layers.registry import attachments
from dsec_layers.registry.attachments import AttachmentReader
from dsec_layers.registry.urls import open_store

if TYPE_CHECKING:
    from dsec_layers.api.workbench import Workbench
    from dsec_layers.model.reference import Reference

_log = logging.getLogger(__name__)


class TraceRow(msgspec.Struct, frozen=True):
    """A trace: of what, out of how many runs, how many chunks, and where it was put."""

    environment: str
    runs: int
    chunks: int
    stores: tuple[str, ...] = ()

    @classmethod
    def of(cls, trace: Trace, stores: Sequence[str] = ()) -> TraceRow:
        """What to tell of `trace`."""
        chunks = sum(len(layer.touches) for layer in trace.layers)
        return cls(trace.environment, trace.runs, chunks, tuple(stores))


def files(bench: Workbench) -> TraceFiles:
    """The traces of this home."""
    return TraceFiles(bench.home.root)


def start(bench: Workbench, environment: Descriptor, prefetch_bytes: int | None) -> Start:
    """What to tell the daemon of a mount of `environment`, whose accesses are to be recorded.

    A trace that came with it from a store counts from now on, unless one of this home is there.
    """
    if prefetch_bytes != 0:
        _adopt(bench, environment)
    return Start(uuid.uuid4().hex, environment.digest, prefetch_bytes)


def known(bench: Workbench, environment: Descriptor) -> Trace | None:
    """What is known of `environment`, of runs that go on too. Raises CorruptError."""
    client = DaemonClient(bench.home.root)
    if client.running():
        try:
            client.save_traces()
        except DaemonError as error:  # an older one is running, or it ends just now
            _log.info("what goes on is not known: %s", error)
    _adopt(bench, environment)
    return files(bench).load(environment.digest)


def required(bench: Workbench, environment: Descriptor, reference: Reference) -> Trace:
    """The same. Raises NotFoundError when nothing is known, CorruptError."""
    trace = known(bench, environment)
    if trace is None:
        raise NotFoundError(
            f"no accesses of {reference} are known here",
            hint="`dsec-layers run` or `mount` it: what it reads first is recorded",
        )
    return trace


def parts(bench: Workbench, environment: Descriptor, layers: Sequence[str]) -> list[LayerTrace]:
    """What a mount would go by: of layers unknown in this environment, from another one."""
    known(bench, environment)
    found = (files(bench).part(environment.digest, layer) for layer in layers)
    return [part for part in found if part is not None]


def merge_files(bench: Workbench, paths: Sequence[Path]) -> list[TraceRow]:
    """Merge trace files into what this home knows. Raises CorruptError, InvalidInputError.

    All are read before anything is changed.
    """
    by_environment: dict[str, list[Trace]] = {}
    for path in paths:
        trace = _read(path)
        by_environment.setdefault(trace.environment, []).append(trace)
    return [TraceRow.of(files(bench).add(*each)) for each in by_environment.values()]


def push(bench: Workbench, reference: Reference, url: str) -> TraceRow:
    """Put what is known of `reference` beside it in the store at `url`, in place of an older trace.

    Raises NotFoundError when nothing is known, or the store lacks the environment, StoreError.
    """
    subject = bench.resolve(reference)
    trace = required(bench, subject, reference)
    store = open_store(url)
    if not store.has(subject):
        raise NotFoundError(f"{reference} is not in {url}", hint="push it there first")
    data = trace.encode()
    made = Attachment(TRACE_ARTIFACT, subject, (Descriptor.of(data, TRACE_TYPE),))
    attachments.publish(store, made, data)
    for older in list(store.referrers(subject)):
        if older.artifact_type == TRACE_ARTIFACT and older.digest != made.descriptor().digest:
            store.detach(subject, older)
    return TraceRow.of(trace, [store.url])


def remove(bench: Workbench, reference: Reference, url: str | None = None) -> bool:
    """Forget the trace of `reference` here, or in the store at `url`; whether there was one.

    Raises NotFoundError when there is no such environment, StoreError.
    """
    subject = bench.resolve(reference)
    store = bench.store(url)
    attached = [each for each in store.referrers(subject) if each.artifact_type == TRACE_ARTIFACT]
    for each in attached:
        store.detach(subject, each)
    return (url is None and files(bench).remove(subject.digest)) or bool(attached)


def _adopt(bench: Workbench, environment: Descriptor) -> None:
    """Take over what came with `environment`; a failure is logged, for one starts without too."""
    if environment.digest in files(bench):
        return
    try:
        found = list(_attached(bench.local, environment))
        if found:
            files(bench).add(*found)
    except (DsecError, OSError) as error:
        _log.warning("the trace of %s is not taken over: %s", environment.digest, error)


def _attached(store: AttachmentReader, subject: Descriptor) -> Iterator[Trace]:
    for referrer in store.referrers(subject):
        if referrer.artifact_type != TRACE_ARTIFACT:
            continue
        try:
            attachment = attachments.load(store, referrer, subject)
            yield _decode(store, attachment)
        except (CorruptError, NotFoundError) as error:
            _log.warning("%s; it is ignored", error)


def _decode(store: AttachmentReader, attachment: Attachment) -> Trace:
    what = f"the trace of {attachment.subject.digest}"
    if len(attachment.data) != 1 or attachment.data[0].size > MAX_STORED_BYTES:
        raise CorruptError(f"{what} is too large, or in parts")
    trace = Trace.decode(store.read(attachment.data[0]), what=what)
    if trace.environment != attachment.subject.digest:
        raise CorruptError(f"{what} is of {trace.environment}")
    return merge([trace])


def _read(path: Path) -> Trace:
    try:
        with path.open("rb") as file:
            return Trace.decode(file.read(MAX_STORED_BYTES + 1), what=f"trace {path}")
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
