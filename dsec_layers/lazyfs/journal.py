"""The journal of mounts: who uses which layers, written before anything is mounted.

    DSEC_HOME/run/mounts.lock       held (flock) while mounts change, for moments only
    DSEC_HOME/run/journal/<id>.json one record for each user of layers: a rootfs, or a holder

A layer mount is wanted as long as a record lists the layer, so the records are its use count. A
record of a dead owner tells what is to be undone, whatever the moment of its death.

Those that end with their process are not synced: after a crash of the machine nothing of theirs is
mounted or worth keeping. Their ids tell the boot, so that what is left of them is known when the
record was cut short or lost. A sync would take longer than all the rest of a mount, while chunks
that were fetched are on their way to the same disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs import durable
from dsec_layers.linux import procinfo
from dsec_layers.model import canonical

_BOUND: Final = "run-"


def new_id(*, bound: bool) -> str:
    """An id for a record."""
    some = uuid.uuid4().hex[:16]
    return f"{_BOUND}{_this_boot()}-{some}" if bound else some


def of_earlier_boot(record_id: str) -> bool:
    """Whether this was the id of a user that ended with its process, before the last boot."""
    return record_id.startswith(_BOUND) and not record_id.startswith(f"{_BOUND}{_this_boot()}-")


def _this_boot() -> str:
    return procinfo.boot_id()[:8]


class Phase(StrEnum):
    """Where a user of layers stands. In the outer two its owner is at work, and must be alive."""

    MOUNTING = "mounting"
    MOUNTED = "mounted"
    REMOVING = "removing"


class Owner(msgspec.Struct, frozen=True):
    """A process, named for good by its id and its start in clock ticks since boot."""

    pid: int
    start: int

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(os.getpid(), procinfo.start_ticks(os.getpid()) or 0)

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return procinfo.start_ticks(self.pid) == self.start


class LayerUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A layer by its hexadecimal digest, and the identity of the device file below its mount."""

    hex: str
    device: str = ""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One user of layers. `layers` are lowest first; without `target` they are only mounted.

    `bound` users end with their owner, others with `unmount`. `own_upper`: the upper was made for
    this rootfs and goes with it, unless `keep_upper`. `made_target`: the mount point goes too.
    """

    id: str
    phase: Phase
    owner: Owner
    boot: str
    namespace: int
    layers: tuple[LayerUse, ...]
    bound: bool
    name: str = ""
    target: str = ""
    made_target: bool = False
    read_only: bool = False
    upper: str = ""
    work: str = ""
    own_upper: bool = False
    keep_upper: bool = False

    @property
    def source(self) -> str:
        """The name of the overlay in mountinfo."""
        return f"dsec:{self.id}"

    @property
    def here(self) -> bool:
        """Whether its mounts are, or were, in this mount namespace of this boot."""
        return self.boot == procinfo.boot_id() and self.namespace == procinfo.mount_namespace()


def uses_here(records: Iterable[Record]) -> set[LayerUse]:
    """The layers that `records` list whose mounts are in this mount namespace of this boot."""
    here = (procinfo.boot_id(), procinfo.mount_namespace())  # asked for once, not for each
    found = (record for record in records if (record.boot, record.namespace) == here)
    return {use for record in found for use in record.layers}


class Journal:
    """The records of one node. `put` and `drop` are called with the lock held."""

    def __init__(self, run: Path) -> None:
        self._lock = run / "mounts.lock"
        self._folder = run / "journal"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the node's lock; it ends with the process, however that ends."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(exist_ok=True)
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def put(self, record: Record) -> None:
        """Write a record, replacing the one with the same id. Raises NoSpaceError."""
        data = canonical.encode(record)
        durable.write_whole(Path(self._path(record.id)), [data], sync=not record.bound)

    def drop(self, record: Record) -> None:
        """Remove a record, when all that it tells of is undone."""
        Path(self._path(record.id)).unlink(missing_ok=True)

    def records(self) -> list[Record]:
        """All records, in the order of their ids. Raises CorruptError naming a malformed file."""
        records = []
        for record_id in self._ids():
            try:
                records.append(_decode(self._path(record_id)))
            except FileNotFoundError:  # dropped by another process just now
                continue
            except CorruptError:
                if not of_earlier_boot(record_id):
                    raise
        return records

    def sweep(self) -> None:
        """Remove half-written records of killed processes, and of machines that crashed."""
        durable.sweep(self._folder)
        for record_id in filter(of_earlier_boot, self._ids()):
            try:
                _decode(self._path(record_id))
            except CorruptError:
                Path(self._path(record_id)).unlink()

    def _ids(self) -> list[str]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - at each mount, and long with many
        except FileNotFoundError:
            return []
        return sorted(name.removesuffix(".json") for name in names if not name.startswith("."))

    def _path(self, record_id: str) -> str:
        return f"{self._folder}/{record_id}.json"


def _decode(path: str) -> Record:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - all of them, at each mount
        data = file.read()
    try:
        return canonical.decode(data, Record, what=f"mount journal {path}")
    except CorruptError as error:
        error.hint = f"unmount what it tells of by hand, then remove {path}"
        raise
