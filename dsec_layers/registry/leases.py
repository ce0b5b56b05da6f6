"""Leases: what a user of a store counts on, written there so that no collector removes it.

    leases/<boot>-<random>    {"digests":["sha256:...",...],"purpose":"push","ttl_s":3600}

A lease names blobs that are there and blobs that will be. It holds for `ttl_s` after it was last
written, by the clock of the store; its holder writes it again every quarter of that, and removes it
at the end. The order that makes it safe is told in `condemned`.

It is not synced to the disk of this machine, which would be the longest part of a mount. For it
protects nothing but what its holder is about to use, and a power failure ends both together; what
the holder has made before is safe without it, by a tag or a record that is synced. A note that was
cut short may be left; by `<boot>`, the boot of its holder's machine, it is known that it is no
damage. On cluster file systems, whose nodes fail one by one, it is synced.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import BusyError, CorruptError, DsecError, NotFoundError, StoreError
from dsec_layers.linux import procinfo
from dsec_layers.model import canonical
from dsec_layers.model.blobs import BlobWriter
from dsec_layers.model.collecting import Collectable, Note, is_collectable
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import condemned
from dsec_layers.registry.condemned import Timing

FOLDER: Final = "leases"
_OF_A_BOOT: Final = re.compile(FOLDER + "/([0-9a-f]{8})-[0-9a-f]{32}")
_log = logging.getLogger(__name__)


class Lease(msgspec.Struct, frozen=True):
    """What stands in the note."""

    digests: tuple[str, ...]
    purpose: str
    ttl_s: float


class Held:
    """A lease while it is held; thread-safe. Without a collectable `store` it does nothing."""

    def __init__(self, store: object, purpose: str, timing: Timing, *, optional: bool) -> None:
        self._store = store if is_collectable(store) else None
        self._optional = optional
        self._purpose = purpose
        self._timing = timing
        self._name = f"{FOLDER}/{_this_boot()}-{secrets.token_hex(16)}"
        self._digests: set[str] = set()
        self._lock = threading.Lock()
        self._since = timing.clock()
        self._ended = threading.Event()

    def add(self, blobs: Iterable[Descriptor]) -> None:
        """Count on these blobs too, whether they are there or not.

        Returns when none of them is about to be removed; only then does it mean anything to ask
        for them. Raises NoSpaceError or StoreError.
        """
        new = {blob.digest for blob in blobs} - self._digests
        if self._store is None or not new:
            return
        self.check()
        try:
            with self._lock:
                self._digests |= new
                self._write(self._store)
        except StoreError:
            if not self._optional:
                raise
            self._store = None
        else:
            condemned.wait(self._store, new, self._timing)

    def check(self) -> None:
        """Right before anything is made visible that needs the blobs.

        Raises BusyError when the lease could not be renewed for too long.
        """
        if self._store is None or not self._digests:
            return
        if self._timing.clock() - self._since > self._timing.lease_s / 2:
            raise BusyError(
                "this process stood still for so long that its data may have been removed",
                hint="run it again: what has arrived is not moved twice",
            )

    def renew(self) -> None:
        """Write the lease again. Raises NoSpaceError or StoreError, BusyError as `check`."""
        self.check()
        with self._lock:
            if self._store is not None and self._digests:
                self._write(self._store)

    def keep(self) -> None:
        """Renew until `release`; called in a thread of its own."""
        while not self._ended.wait(self._timing.lease_s / 4):
            try:
                self.renew()
            except DsecError as error:  # `check` tells when that went on for too long
                _log.warning("a lease is not renewed: %s", error)

    def release(self) -> None:
        """Give the lease up; one that cannot be removed ends by itself."""
        with self._lock:
            self._ended.set()
            if self._store is not None and self._digests:
                with contextlib.suppress(DsecError):
                    self._store.remove_note(self._name)

    def _write(self, store: Collectable) -> None:
        if self._ended.is_set():
            return
        since = self._timing.clock()
        lease = Lease(tuple(sorted(self._digests)), self._purpose, self._timing.lease_s)
        store.write_note(self._name, canonical.encode(lease), sync=False)
        self._since = since


class LeasedWriter:
    """A `BlobWriter` that counts on what it puts."""

    def __init__(self, store: BlobWriter, held: Held) -> None:
        self._store = store
        self._held = held

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        """See `BlobWriter.put`."""
        self._held.add((blob,))
        return self._store.put(blob, source, consume=consume)


@contextlib.contextmanager
def hold(
    store: object,
    blobs: Iterable[Descriptor] = (),
    *,
    purpose: str,
    optional: bool = False,
    timing: Timing | None = None,
) -> Iterator[Held]:
    """Count on `blobs` for the length of a block; see `Held.add`.

    A store that others collect, such as a registry, is left alone, and so is, with `optional`, one
    that we may not write to. Raises NoSpaceError, StoreError.
    """
    held = Held(store, purpose, timing or Timing(), optional=optional)
    keeper = threading.Thread(target=held.keep, name="lease", daemon=True)
    keeper.start()
    try:
        held.add(blobs)
        yield held
    finally:
        held.release()


def held_digests(store: Collectable, now_s: float) -> Iterator[str]:
    """What all leases name that hold at the store's time `now_s`; much older ones are removed.

    Raises CorruptError or StoreError.
    """
    for note in store.notes(FOLDER):
        with contextlib.suppress(NotFoundError):
            lease = _read(store, note)
            if now_s - note.modified_s <= lease.ttl_s:
                yield from lease.digests
            elif now_s - note.modified_s > 2 * lease.ttl_s:  # nobody is just renewing it
                store.remove_note(note.name)


def _read(store: Collectable, note: Note) -> Lease:
    """The lease in a note; one that names nothing for what a power failure has cut short."""
    data = store.read_note(note.name)
    try:
        return canonical.decode(data, Lease, what=f"lease {note.name} in {store.url}")
    except CorruptError:
        found = _OF_A_BOOT.fullmatch(note.name)
        if found is None or found[1] == _this_boot():
            raise
        return Lease((), "", Timing().lease_s)


def _this_boot() -> str:
    return procinfo.boot_id()[:8]
