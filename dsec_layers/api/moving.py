"""Layers and environments on their way between stores; only what the other side lacks moves."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.blobs import Store
from dsec_layers.model.reference import Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.pace import Pace
from dsec_layers.registry.urls import open_store


class Moved(msgspec.Struct, frozen=True):
    """The result of a push or pull."""

    reference: str
    digest: str
    store: str
    sent_bytes: int
    skipped_bytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How many blobs move at once, and how many bytes a second at most; None for no limit."""

    jobs: int = transfer.DEFAULT_WORKERS
    bytes_per_s: float | None = None

    def pace(self) -> Pace | None:
        """The limit of one transfer."""
        return Pace(self.bytes_per_s) if self.bytes_per_s else None


def push(
    bench: Workbench,
    reference: Reference,
    url: str,
    progress: transfer.Progress | None = None,
    limits: Limits = Limits(),
) -> Moved:
    """Copy from the local store to the one at `url`, which is made when its scheme can.

    Raises NotFoundError, CorruptError, StoreError, NoSpaceError.
    """
    bench.local.resolve(reference)  # before a store is made for nothing
    destination = open_store(url, create=True)
    copied = transfer.copy(
        reference,
        bench.local,
        destination,
        workers=limits.jobs,
        pace=limits.pace(),
        progress=progress,
    )
    return _moved(reference, url, copied)


def pull(
    bench: Workbench,
    reference: Reference,
    url: str | None = None,
    *,
    metadata_only: bool = False,
    progress: transfer.Progress | None = None,
    limits: Limits = Limits(),
) -> Moved:
    """Copy to the local store from the one at `url`, or the first of the workbench's that has it.

    `metadata_only` leaves out the packs. Raises as `push`, and SignatureError before anything is
    fetched that the workbench does not trust.
    """
    stores: tuple[Store, ...] = (open_store(url),) if url else bench.remotes
    if not stores:
        raise InvalidInputError("no store to pull from", hint="name one: pull REFERENCE URL")
    source, wanted = _first_with(bench, reference, stores)
    copied = transfer.copy(
        wanted,
        source,
        bench.local,
        metadata_only=metadata_only,
        workers=limits.jobs,
        pace=limits.pace(),
        progress=progress,
    )
    return _moved(reference, source.url, copied)


def _first_with(
    bench: Workbench, reference: Reference, stores: tuple[Store, ...]
) -> tuple[Store, Reference]:
    for store in stores:
        try:
            return store, bench.admitted(reference, store)
        except NotFoundError:
            continue
    raise NotFoundError(f"there is no {reference} in {', '.join(store.url for store in stores)}")


def _moved(reference: Reference, url: str, copied: transfer.Copied) -> Moved:
    return Moved(
        reference=str(reference),
        digest=copied.target.digest,
        store=url,
        sent_bytes=copied.moved_bytes,
        skipped_bytes=copied.skipped_bytes,
    )
