"""Layers and environments from one store to another, without this machine's own between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from dsec_layers.api.moving import Limits, Moved
from dsec_layers.errors import DsecError, InvalidInputError, NotFoundError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import closure, transfer

_WORKERS: Final = 8
_UNLIMITED: Final = Limits()
Begin = Callable[[Reference], transfer.Progress]


class Mirrored(msgspec.Struct, frozen=True, kw_only=True):
    """One reference at the destination.

    It is `complete` when its tag points to the same digest there and nothing of it is missing.
    Otherwise `missing_bytes` in `missing_blobs` are to be copied, or a `problem` prevented it.
    """

    reference: str
    digest: str
    kind: str
    complete: bool
    missing_blobs: int = 0
    missing_bytes: int = 0
    copied_bytes: int = 0
    problem: str | None = None


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """How what was asked for stands at the destination now.

    `ready` are the environments that are complete there, `exit_code` is that of the first problem.
    """

    source: str
    destination: str
    dry_run: bool
    references: tuple[Mirrored, ...]
    ready: tuple[str, ...]
    copied_bytes: int
    exit_code: int = 0


def copy(
    references: Sequence[Reference],
    source: Store,
    destination: Store,
    limits: Limits = _UNLIMITED,
    begin: Begin = lambda _: lambda _: None,
) -> list[Moved]:
    """Copy from store to store, one after the other; what has arrived is not moved again.

    `begin` is told each reference and gives who hears of its progress. Raises NotFoundError,
    CorruptError, ConflictError, StoreError or NoSpaceError; what was copied before stays.
    """
    return [_copied(each, each, source, destination, limits, begin) for each in references]


def sync(
    selectors: Sequence[str],
    source: Store,
    destination: Store,
    *,
    dry_run: bool = False,
    limits: Limits = _UNLIMITED,
    begin: Begin = lambda _: lambda _: None,
) -> Synced:
    """Copy all that `selectors` choose, and tell what is complete at the destination.

    A selector is a kind (`env`), or a pattern of references, with or without a tag
    (`workspace/swe/*`, `env/demo:v?`). One problem does not keep the rest from being copied.
    Nothing is removed at the destination. Raises InvalidInputError when a selector chooses nothing.
    """
    rows: list[Mirrored] = []
    code = 0
    with ThreadPoolExecutor(_WORKERS, "sync") as pool:
        for reference, target in selected(source, selectors):
            try:
                row = _compared(reference, target, source, destination, pool)
                if not row.complete and not dry_run:
                    pinned = reference.pinned(target.parsed_digest)
                    moved = _copied(pinned, reference, source, destination, limits, begin)
                    row = _row(reference, target, complete=True, copied_bytes=moved.sent_bytes)
            except DsecError as error:
                code = code or error.exit_code
                row = _row(reference, target, complete=False, problem=error.message)
            rows.append(row)
    return Synced(
        source=source.url,
        destination=destination.url,
        dry_run=dry_run,
        references=tuple(rows),
        ready=tuple(row.reference for row in rows if row.complete and row.kind == Kind.ENV),
        copied_bytes=sum(row.copied_bytes for row in rows),
        exit_code=code,
    )


def selected(store: Store, selectors: Sequence[str]) -> list[tuple[Reference, Descriptor]]:
    """The tags that any selector chooses, in order. Raises InvalidInputError."""
    found: list[tuple[Reference, Descriptor]] = []
    used: set[str] = set()
    for reference, target in store.tags():
        choosing = {each for each in selectors if _chooses(each, reference)}
        if choosing:
            used |= choosing
            found.append((reference, target))
    if idle := [each for each in selectors if each not in used]:
        raise InvalidInputError(
            f"{idle[0]!r} chooses nothing in {store.url}",
            hint="write a kind, or a pattern such as 'env/*' or 'workspace/swe/*:v1'",
        )
    return found


def _chooses(selector: str, reference: Reference) -> bool:
    if selector == reference.kind.value:
        return True
    if reference.kind is Kind.CACHE and not selector.startswith(Kind.CACHE.value):
        return False
    text = str(reference) if ":" in selector else reference.repository
    return fnmatchcase(text, selector)


def _compared(
    reference: Reference,
    target: Descriptor,
    source: Store,
    destination: Store,
    pool: ThreadPoolExecutor,
) -> Mirrored:
    blobs = list(closure.blobs(source, target))
    missing = [
        blob
        for blob, there in zip(blobs, pool.map(destination.has, blobs), strict=True)
        if not there
    ]
    complete = not missing and _stands(destination, reference) == target.digest
    return _row(reference, target, complete=complete, missing=missing)


def _stands(store: Store, reference: Reference) -> str:
    """The digest that a tag points to, or nothing."""
    try:
        return store.resolve(reference).digest
    except NotFoundError:
        return ""


def _row(
    reference: Reference,
    target: Descriptor,
    *,
    complete: bool,
    missing: Sequence[Descriptor] = (),
    copied_bytes: int = 0,
    problem: str | None = None,
) -> Mirrored:
    return Mirrored(
        reference=str(reference),
        digest=target.digest,
        kind=reference.kind.value,
        complete=complete,
        missing_blobs=len(missing),
        missing_bytes=sum(blob.size for blob in missing),
        copied_bytes=copied_bytes,
        problem=problem,
    )


def _copied(
    wanted: Reference,
    name: Reference,
    source: Store,
    destination: Store,
    limits: Limits,
    begin: Begin,
) -> Moved:
    copied = transfer.copy(
        wanted,
        source,
        destination,
        name=name,
        workers=limits.jobs,
        pace=limits.pace(),
        progress=begin(name),
    )
    return Moved(
        reference=str(name),
        digest=copied.target.digest,
        store=destination.url,
        sent_bytes=copied.moved_bytes,
        skipped_bytes=copied.skipped_bytes,
    )
