"""Removes from a store what nobody needs, beside those who read and write there.

What is needed is what tags, leases and mounts lead to (`marking`). Of the rest a blob goes when it
was neither put nor renewed within the grace period; a manifest or index that is younger than that,
or than `keep_untagged_s`, keeps all it leads to. Removal is announced first, and what is needed is
looked for once more (`condemned`). Indexes go before manifests and these before all others: whoever
is killed on the way leaves no manifest whose blobs are gone, and the next run goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dsec_layers.errors import CapabilityMissingError, CorruptError, NotFoundError, StoreError
from dsec_layers.model.blobs import Store
from dsec_layers.model.collecting import Collectable, is_collectable
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import condemned, leases
from dsec_layers.registry.condemned import Timing
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES
from dsec_layers.registry.marking import Document, Marks, load

GRACE_S: Final = 24 * 3600.0
WORKERS: Final = 8
_ROUND: Final = 65536  # blobs announced at once
_WAVE: Final = 256  # blobs between two looks at the clock
_CLOCK: Final = "clock"  # the folder of the notes that only their time is wanted of
_FORGOTTEN_S: Final = 3600.0
_RANKS: Final = (OCI_INDEX, OCI_MANIFEST)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is spared. A `dry_run` removes nothing."""

    grace_s: float = GRACE_S
    keep_untagged_s: float = 0.0
    dry_run: bool = False
    workers: int = WORKERS
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or would be; and what no tag leads to but is too young to go."""

    blobs: int
    bytes: int
    young_blobs: int
    young_bytes: int


class _Found(NamedTuple):
    """A blob that was not marked. `age_s` since it was renewed; documents go by lower `rank`."""

    rank: int
    blob: Descriptor
    age_s: float
    subject: Descriptor | None


def collectable(store: Store) -> Collectable:
    """The store as one that can be collected. Raises CapabilityMissingError."""
    if not is_collectable(store):
        raise CapabilityMissingError(
            f"{store.url} is collected by its own server", hint="untag what is not needed there"
        )
    return store


def collect(
    store: Collectable,
    rules: Rules = Rules(),
    *,
    in_use: Callable[[], Iterable[str]] = tuple,
    progress: Callable[[int], None] = lambda _: None,
) -> Collected:
    """Remove what nobody needs by the `rules`.

    `in_use` gives digests of layers that are needed though no tag may lead to them; it is asked
    again before anything is removed. `progress` is told the bytes removed since its last call. What
    cannot be read is taken to be in use, and ends the run. Raises CorruptError, NotFoundError,
    StoreError, or BusyError when this process stood still.
    """
    with ThreadPoolExecutor(rules.workers, "collect") as pool:
        return _Collector(store, rules, in_use, progress, pool).run()


class _Collector:
    def __init__(
        self,
        store: Collectable,
        rules: Rules,
        in_use: Callable[[], Iterable[str]],
        progress: Callable[[int], None],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._store = store
        self._rules = rules
        self._in_use = in_use
        self._progress = progress
        self._pool = pool
        self._marks = Marks(store, pool)

    def run(self) -> Collected:
        now_s = store_time(self._store)
        condemned.clean(self._store, now_s)
        self._mark(now_s)
        doomed, young = self._judge(now_s)
        gone = doomed if self._rules.dry_run else []
        if not self._rules.dry_run:
            for start in range(0, len(doomed), _ROUND):
                gone += self._round(doomed[start : start + _ROUND])
            self._store.remove_stale(max(self._rules.grace_s, GRACE_S))
        return Collected(len(gone), _sum(gone), len(young), _sum(young))

    def _mark(self, now_s: float) -> None:
        """In this order: who gives up a lease has set a tag, or written a record, before."""
        self._marks.add(leases.held_digests(self._store, now_s))
        for digest in self._in_use():
            self._marks.add((digest,))
            with contextlib.suppress(NotFoundError):  # it is read from elsewhere
                self._marks.follow((_layer(self._store, digest),))
        self._marks.follow_tags()

    def _judge(self, now_s: float) -> tuple[list[_Found], list[_Found]]:
        """What is to go, in order, and what will be when it is older."""
        found = list(self._unmarked(now_s))
        spared_s = max(self._rules.grace_s, self._rules.keep_untagged_s)
        self._marks.follow(
            each.blob for each in found if each.rank < len(_RANKS) and each.age_s <= spared_s
        )
        doomed: list[_Found] = []
        young: list[_Found] = []
        for each in found:
            old = each.age_s > self._rules.grace_s and each.blob.digest not in self._marks
            (doomed if old else young).append(each)
        return sorted(doomed, key=lambda each: each.rank), young

    def _unmarked(self, now_s: float) -> Iterator[_Found]:
        blobs = (blob for blob in self._store.blobs() if blob.digest not in self._marks)
        while wave := list(itertools.islice(blobs, _WAVE)):
            for found in self._pool.map(lambda blob: self._look(blob, now_s), wave):
                if found is not None:
                    yield found

    def _look(self, blob: Descriptor, now_s: float) -> _Found | None:
        """None when somebody else removed it."""
        try:
            age_s = now_s - self._store.renewed(blob)
            document = _document(self._store, blob)
        except NotFoundError:
            return None
        if document is None:
            return _Found(len(_RANKS) + 1, blob, age_s, None)
        typed = Descriptor(document.media_type, blob.digest, blob.size)
        rank = len(_RANKS) if document.subject else _RANKS.index(document.media_type)
        return _Found(rank, typed, age_s, document.subject)

    def _round(self, batch: Sequence[_Found]) -> list[_Found]:
        """Remove what is still not needed when its removal is announced; returns it."""
        gone: list[_Found] = []
        digests = [each.blob.digest for each in batch]
        with condemned.announced(self._store, digests, self._rules.timing) as announcement:
            now_s = store_time(self._store)
            self._mark(now_s)
            for _, group in itertools.groupby(batch, key=lambda each: each.rank):
                while wave := list(itertools.islice(group, _WAVE)):
                    announcement.check()
                    gone += filter(None, self._pool.map(lambda one: self._remove(one, now_s), wave))
        return gone

    def _remove(self, found: _Found, now_s: float) -> _Found | None:
        if found.blob.digest in self._marks:
            return None
        try:
            if now_s - self._store.renewed(found.blob) <= self._rules.grace_s:
                return None
        except NotFoundError:
            return None
        if found.subject is not None:
            self._store.detach(found.subject, found.blob)
        self._store.delete(found.blob)
        self._progress(found.blob.size)
        return found


def store_time(store: Collectable) -> float:
    """The time now by the clock of the store. Raises StoreError."""
    name = f"{_CLOCK}/{secrets.token_hex(16)}"
    store.write_note(name, b"")
    times = {note.name: note.modified_s for note in store.notes(_CLOCK)}
    store.remove_note(name)
    if name not in times:
        raise StoreError(f"{store.url} does not list what was just written to it")
    for left, modified_s in times.items():
        if times[name] - modified_s > _FORGOTTEN_S:
            store.remove_note(left)
    return times[name]


def _document(store: Store, blob: Descriptor) -> Document | None:
    """The manifest or index that a blob may be; None for anything else."""
    if blob.media_type == PACK_TYPE or not 0 < blob.size <= MAX_DOCUMENT_BYTES:
        return None
    with contextlib.suppress(CorruptError):
        if store.read(blob, 0, 1) == b"{":
            document = load(store, blob)
            return document if document.media_type in _RANKS else None
    return None


def _layer(store: Store, digest: str) -> Descriptor:
    return store.resolve(Reference(Kind.BASE, "by-digest", "", Digest.parse(digest)))


def _sum(found: Iterable[_Found]) -> int:
    return sum(each.blob.size for each in found)
