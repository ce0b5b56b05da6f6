"""What collectors are about to remove, announced so that nobody begins to count on it.

    condemned/<random>    {"digests":["sha256:...",...],"ttl_s":120}

A collector announces before it looks once more at what is in use, and a user of blobs writes its
lease before it looks at announcements. So either the collector sees the lease and spares the blob,
or the user sees the announcement and waits until the blob is gone, or safe. A collector renews its
announcement; one that stays the same for its whole `ttl_s`, by the clock of who waits, belongs to
a collector that died, which would refuse itself by now: its announcement is removed.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import msgspec

from dsec_layers.errors import BusyError, DsecError, NotFoundError
from dsec_layers.model import canonical
from dsec_layers.model.collecting import Collectable, Note

FOLDER: Final = "condemned"


def boot_clock() -> float:
    """Seconds since this machine started, those in which it was suspended too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Timing(msgspec.Struct, frozen=True):
    """How long notes hold without renewal, and the clock that measures it (tests bring theirs)."""

    lease_s: float = 3600.0
    announcement_s: float = 120.0
    poll_s: float = 0.2
    clock: Callable[[], float] = boot_clock
    sleep: Callable[[float], None] = time.sleep


class _Announced(msgspec.Struct, frozen=True):
    digests: tuple[str, ...]
    ttl_s: float


class Announcement:
    """What this collector is about to remove; thread-safe. See `announced`."""

    def __init__(self, store: Collectable, digests: Iterable[str], timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._data = canonical.encode(_Announced(tuple(digests), timing.announcement_s))
        self._name = f"{FOLDER}/{secrets.token_hex(16)}"
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._write()

    def check(self) -> None:
        """Right before a removal: renews when it is time. Raises BusyError when it is too late."""
        with self._lock:
            age = self._timing.clock() - self._since
            if age >= self._timing.announcement_s / 2:
                raise BusyError(
                    "the collection stood still for so long that others take it for dead",
                    hint="nothing is lost; run it again",
                )
            if age >= self._timing.announcement_s / 4 and not self._ended.is_set():
                self._write()

    def keep(self) -> None:
        """Renew until `end`, while it is looked for what is needed; in a thread of its own."""
        while not self._ended.wait(self._timing.announcement_s / 8):
            with contextlib.suppress(DsecError):  # who removes next is told
                self.check()

    def end(self) -> None:
        """Take it back."""
        self._ended.set()
        with self._lock:
            self._store.remove_note(self._name)

    def _write(self) -> None:
        since = self._timing.clock()  # before it stands there, so rather too early
        self._store.write_note(self._name, self._data)
        self._since = since


@contextlib.contextmanager
def announced(store: Collectable, digests: Iterable[str], timing: Timing) -> Iterator[Announcement]:
    """Announce the removal of blobs for the length of a block. Raises StoreError."""
    announcement = Announcement(store, digests, timing)
    threading.Thread(target=announcement.keep, name="announcement", daemon=True).start()
    try:
        yield announcement
    finally:
        announcement.end()


def wait(store: Collectable, digests: Collection[str], timing: Timing) -> None:
    """Return when none of `digests` is about to be removed. Raises StoreError.

    The caller has written a lease for them, so no later announcement takes effect on them.
    """
    wanted = digests if isinstance(digests, (set, frozenset)) else frozenset(digests)
    watched: dict[Note, float] = {}
    while standing := dict(_naming(store, wanted)):
        now = timing.clock()
        watched = {note: watched.get(note, now) for note in standing}
        dead = [note for note, since in watched.items() if now - since >= standing[note]]
        for note in dead:
            store.remove_note(note.name)
        if not dead:
            timing.sleep(timing.poll_s)


def clean(store: Collectable, now_s: float) -> None:
    """Remove the announcements of collectors that died; `now_s` is the store's time."""
    for note in store.notes(FOLDER):
        with contextlib.suppress(NotFoundError):
            if now_s - note.modified_s > _read(store, note).ttl_s:
                store.remove_note(note.name)


def _naming(store: Collectable, digests: Collection[str]) -> Iterator[tuple[Note, float]]:
    """The announcements that name any of `digests`."""
    for note in store.notes(FOLDER):
        with contextlib.suppress(NotFoundError):
            announced = _read(store, note)
            if any(each in digests for each in announced.digests):
                yield note, announced.ttl_s


def _read(store: Collectable, note: Note) -> _Announced:
    return canonical.decode(store.read_note(note.name), _Announced, what=f"note {note.name}")
