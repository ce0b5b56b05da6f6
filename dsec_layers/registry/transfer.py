"""Copies layers and environments between stores, moving only what is missing.

Blobs go first, many at once, in the order packs, tables, metadata, configs; when all are there the
manifests follow, then the index of an environment, then what is attached to them (signatures), then
the tag. So an interrupted copy leaves nothing visible, and the next one skips the blobs that have
arrived.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import msgspec

from dsec_layers.errors import DsecError
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.blobs import BlobReader, Store
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    METADATA_TYPE,
    OCI_INDEX,
    PACK_TYPE,
    TABLE_TYPE,
    Descriptor,
)
from dsec_layers.model.reference import Reference
from dsec_layers.registry import checked, layers, leases, tagging
from dsec_layers.registry.attachments import attachments
from dsec_layers.registry.pace import Pace

DEFAULT_WORKERS: Final = 8
_PUSH_ORDER: Final = (PACK_TYPE, TABLE_TYPE, METADATA_TYPE, CONFIG_TYPE)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be moved is known: blobs and bytes altogether, and those of them already there."""

    blobs: int
    total_bytes: int
    skipped_blobs: int
    skipped_bytes: int


@dataclass(frozen=True, slots=True)
class Moved:
    """So many more bytes have been read from the source."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Published:
    """The layer or environment is whole at the destination, and tagged if a tag was asked for."""

    target: Descriptor


Event = Planned | Moved | Published
_Attached = tuple[Descriptor, Attachment]
Progress = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy."""

    target: Descriptor
    moved_bytes: int
    skipped_bytes: int


def copy(
    reference: Reference,
    source: Store,
    destination: Store,
    *,
    name: Reference | None = None,
    expected: Descriptor | bool | None = False,
    metadata_only: bool = False,
    of_layers: bool = True,
    workers: int = DEFAULT_WORKERS,
    pace: Pace | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copy a layer, or an environment with its layers, and what is attached to any of them.

    At the destination it is tagged `name` (default: `reference`), guarded by `expected` as in
    `References.tag`; a name without a tag tags nothing. `metadata_only` leaves out the packs: what
    a lazy mount needs. Without `of_layers` what is attached to the layers of an environment is left
    out: a mount asks only for what is attached to the environment itself.

    `workers` blobs move at once, all together no faster than `pace`. `progress` is called from
    several threads, never at once. Digests are checked on arrival. Raises NotFoundError,
    CorruptError, StoreError, NoSpaceError, ConflictError, or BusyError when this process stood
    still for so long that its lease ran out.
    """
    progress = progress or _ignore
    found = source.tagged(reference)
    target = msgspec.structs.replace(found, annotations={})
    with (
        _Mover(source, destination, workers, pace, progress) as mover,
        leases.hold(destination, purpose="copy") as held,
        leases.hold(source, purpose="copy", optional=True) as read,
    ):
        stages, attached = mover.survey(target, metadata_only=metadata_only, of_layers=of_layers)
        stages += _attached_stages(attached)
        held.add(blob for stage in stages for blob in stage)
        if not metadata_only:  # of little one knows at once whether it is there
            read.add(blob for stage in stages for blob in stage)
        moved, skipped = mover.move(stages)
        for referrer, attachment in attached:
            destination.attach(attachment.subject, referrer)
        held.check()
        name = name or reference
        if name.tag:
            builder = found.annotations.get(tagging.BUILDER_KEY, "")
            tagging.set_tag(destination, name, target, expected=expected, builder=builder)
    progress(Published(target))
    return Copied(target, moved, skipped)


class _Mover:
    """Moves blobs with a pool of threads; each holds one piece of one blob in memory."""

    def __init__(
        self,
        source: Store,
        destination: Store,
        workers: int,
        pace: Pace | None,
        progress: Progress,
    ) -> None:
        self._source = source
        self._documents = _Documents(source)
        self._destination = destination
        self._progress = progress
        self._pace = pace
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="transfer")
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> _Mover:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def survey(
        self, target: Descriptor, *, metadata_only: bool, of_layers: bool
    ) -> tuple[list[list[Descriptor]], list[_Attached]]:
        """All blobs of a layer or environment, and what is attached to it and its layers.

        The blobs of one list need all of the lists before.
        """
        manifests = layers.layer_descriptors(self._documents, target)
        subjects = (target, *manifests) if of_layers else (target,)
        distinct = {each.digest: each for each in subjects}.values()
        found = self._pool.map(lambda each: list(attachments(self._source, each)), distinct)
        load = functools.partial(layers.load_manifest, self._documents)
        blobs = {
            blob.digest: blob
            for manifest in self._pool.map(load, manifests)
            for blob in manifest.blobs
            if not (metadata_only and blob.media_type == PACK_TYPE)
        }
        # Of one kind the largest first, lest it begin last and all others wait for it alone.
        ordered = sorted(
            blobs.values(), key=lambda blob: (_PUSH_ORDER.index(blob.media_type), -blob.size)
        )
        index = [target] if target.media_type == OCI_INDEX else []
        return [ordered, list(manifests), index], [each for some in found for each in some]

    def move(self, stages: Sequence[Sequence[Descriptor]]) -> tuple[int, int]:
        """Move what the destination lacks; return the bytes moved and the bytes skipped.

        The first error is raised when all threads have stopped.
        """
        blobs = [blob for stage in stages for blob in stage]
        present = self._pool.map(self._destination.has, blobs)
        there = {blob.digest for blob, found in zip(blobs, present, strict=True) if found}
        total = sum(blob.size for blob in blobs)
        skipped = sum(blob.size for blob in blobs if blob.digest in there)
        self._progress(Planned(len(blobs), total, len(there), skipped))
        for stage in stages:
            self._move_all(blob for blob in stage if blob.digest not in there)
        return total - skipped, skipped

    def _move_all(self, blobs: Iterable[Descriptor]) -> None:
        running = [self._pool.submit(self._move_one, blob) for blob in blobs]
        done, _ = wait(running, return_when=FIRST_EXCEPTION)
        for each in done:
            each.result()

    def _move_one(self, blob: Descriptor) -> None:
        pieces = checked.pieces(blob, self._documents.stream(blob))
        self._destination.put(blob, pieces.shown(functools.partial(self._passing, blob)))

    def _passing(self, blob: Descriptor, piece: bytes) -> None:
        if self._pace:
            self._stopped.wait(self._pace.wait_s(len(piece)))
        if self._stopped.is_set():
            raise DsecError(f"the transfer of {blob.digest} was stopped")
        with self._lock:
            self._progress(Moved(len(piece)))


class _Documents:
    """A `BlobReader` of the source that asks it once for what is read as a whole."""

    def __init__(self, source: BlobReader) -> None:
        self._source = source
        self._known: dict[str, bytes] = {}

    def has(self, blob: Descriptor) -> bool:
        """See BlobReader."""
        return blob.digest in self._known or self._source.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """See BlobReader; what is kept are manifests and indexes, so a few KiB of each layer."""
        if offset or length is not None:
            return self._source.read(blob, offset, length)
        if blob.digest not in self._known:
            carried = blob.carried
            self._known[blob.digest] = self._source.read(blob) if carried is None else carried
        return self._known[blob.digest]

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """See BlobReader."""
        if blob.digest in self._known or blob.data:
            yield self.read(blob)
        else:
            yield from self._source.stream(blob)


def _attached_stages(attached: Sequence[_Attached]) -> list[list[Descriptor]]:
    blobs = {blob.digest: blob for _, attachment in attached for blob in attachment.blobs}
    return [list(blobs.values()), [referrer for referrer, _ in attached]]


def _ignore(_: Event) -> None:
    """No one looks at the progress."""
