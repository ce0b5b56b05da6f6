"""The records of rootless mounts, each written by the process that serves it.

    DSEC_HOME/run/rootless/<id>.json    one mount: what, where, and the process that serves it
    DSEC_HOME/run/rootless/lock         held (flock) by whoever is mounting, for a moment
    DSEC_HOME/run/rootless/log          what the servers have to say, as JSON lines

A record is written before the mount and removed after it. When its process is gone, the mount stays
in the kernel and answers nothing until it is unmounted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs import durable
from dsec_layers.lazyfs.journal import Owner
from dsec_layers.linux import mount, procinfo
from dsec_layers.model import canonical


class RootlessMount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One mount. `layers` are hexadecimal digests, lowest first. `made_target`: it goes too."""

    id: str
    name: str
    target: str
    layers: tuple[str, ...]
    server: Owner
    boot: str
    made_target: bool = False

    @property
    def source(self) -> str:
        """The name of the mount in mountinfo."""
        return f"dsec-{self.id}"

    @property
    def mounted(self) -> bool:
        """Whether it is there, in this mount namespace."""
        found = mount.mounted_at(Path(self.target))
        return found is not None and found.source == self.source

    @property
    def served(self) -> bool:
        """Whether its process still runs."""
        return self.boot == procinfo.boot_id() and self.server.alive


class RootlessMounts:
    """The records below one `run` folder."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "rootless"
        self.log = self.folder / "log"

    def create(self) -> None:
        """Make the folder."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else of this home mounts during the block."""
        self.create()
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def put(self, record: RootlessMount) -> None:
        """Write a record. Raises NoSpaceError."""
        durable.write_whole(self._path(record), [canonical.encode(record)])

    def drop(self, record: RootlessMount) -> None:
        """Remove a record, and the mount point if it was made for it and nothing is in it."""
        self._path(record).unlink(missing_ok=True)
        if record.made_target:
            with contextlib.suppress(OSError):
                Path(record.target).rmdir()

    def listed(self) -> list[RootlessMount]:
        """The records in order of their mount points. Raises CorruptError naming a bad file."""
        found = []
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # dropped by its server just now
                found.append(_decode(path))
        return sorted(found, key=lambda record: record.target)

    def at(self, target: Path) -> RootlessMount | None:
        """The record of what is mounted at `target`, which is absolute and without links."""
        here = [record for record in self.listed() if record.target == str(target)]
        return next((record for record in here if record.mounted), None)

    def sweep(self) -> None:
        """Drop the records of mounts that are gone with their processes."""
        durable.sweep(self.folder)
        for record in self.listed():
            if not (record.served or record.mounted):
                self.drop(record)

    def _path(self, record: RootlessMount) -> Path:
        return self.folder / f"{record.id}.json"


def _decode(path: Path) -> RootlessMount:
    try:
        return canonical.decode(path.read_bytes(), RootlessMount, what=f"record of a mount {path}")
    except CorruptError as error:
        error.hint = f"unmount what it tells of with fusermount3 -u, then remove {path}"
        raise
