"""Undoing mounts: of a user that ends, and of those that died before they could."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dsec_layers.errors import BusyError, DaemonError
from dsec_layers.lazyfs import overlay
from dsec_layers.lazyfs.devices import Devices
from dsec_layers.lazyfs.journal import Journal, Owner, Phase, Record, of_earlier_boot, uses_here
from dsec_layers.lazyfs.layermounts import LayerMounts
from dsec_layers.linux import mount, procinfo
from dsec_layers.model.digest import Digest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was cleaned.

    Users by mount point (or id), unmounted layers (hex), and uppers that stay because somebody's
    work is in them.
    """

    undone: tuple[str, ...] = ()
    unmounted_layers: tuple[str, ...] = ()
    kept_uppers: tuple[Path, ...] = ()


class Janitor:
    """Undoes users of layers. `trace` is told each step, so that a test can stop there."""

    def __init__(self, run: Path, devices: Devices, trace: Callable[[str], None]) -> None:
        self.journal = Journal(run)
        self.mounts = LayerMounts(run)
        self._rootfs = run / "rootfs"
        self._devices = devices
        self._trace = trace

    def folder(self, record_id: str) -> Path:
        """The own folder of a rootfs."""
        return self._rootfs / record_id

    def undo(self, record: Record, *, lazy: bool) -> None:
        """Undo what `record` tells of, then drop it. Raises BusyError unless `lazy`."""
        self._undo_overlay(record, lazy=lazy, keep_upper=record.keep_upper)
        with self.journal.locked():
            others = [other for other in self.journal.records() if other.id != record.id]
            self._release({use.hex for use in record.layers}, others)
            self._trace("layers released")
            self.journal.drop(record)

    def undo_forced(self, record: Record) -> None:
        """The same for a user that ends now: what is in use is detached, and ends with its use."""
        try:
            self.undo(record, lazy=False)
        except BusyError as error:
            _log.warning("%s; detached", error.message)
            self.undo(record, lazy=True)

    def sweep(self) -> tuple[Reconciled, list[Record]]:
        """Undo all that has no living owner, and list the rest. With the journal's lock held."""
        self.journal.sweep()
        records = self.journal.records()
        dead = dead_among(records)
        living = [record for record in records if record not in dead]
        kept = []
        for record in dead:
            keep_upper = record.keep_upper or _left_behind(record)
            self._undo_overlay(record, lazy=True, keep_upper=keep_upper)
            if record.own_upper and keep_upper:
                kept.append(Path(record.upper))
                _log.warning("the upper of %s was left behind: %s", record.target, record.upper)
        claimed = {use.hex for record in dead for use in record.layers}
        known = claimed | self.mounts.known() | set(self._devices.served())
        unmounted = self._release(known, living)
        self._trace("swept")
        for record in dead:
            self.journal.drop(record)
        self._clear(records)
        undone = tuple(record.target or record.id for record in dead)
        return Reconciled(undone, unmounted, tuple(kept)), living

    def _clear(self, records: Iterable[Record]) -> None:
        """Remove the folders of users that ended with the machine, their records too."""
        known = {record.id for record in records}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._rootfs):  # noqa: PTH208 - at each mount
                if of_earlier_boot(name) and name not in known:
                    shutil.rmtree(self._rootfs / name, ignore_errors=True)

    def _undo_overlay(self, record: Record, *, lazy: bool, keep_upper: bool) -> None:
        overlay.unmount_rootfs(record, lazy=lazy)
        self._trace("overlay unmounted")
        overlay.remove_folders(record, self.folder(record.id), keep_upper=keep_upper)
        self._trace("folders removed")

    def _release(self, layers: Collection[str], records: Iterable[Record]) -> tuple[str, ...]:
        """Unmount those of `layers` that none of `records` lists; the ones that were mounted."""
        listed = list(records)
        used_here = {use.hex for use in uses_here(listed)}
        used = {use.hex for record in listed for use in record.layers}
        unused = set(layers) - used_here
        mounted = self.mounts.mounted(unused)
        for hex_digest in sorted(mounted):
            self.mounts.unmount(hex_digest)
        self._forget(unused - used)
        return tuple(sorted(mounted))

    def _forget(self, layers: Collection[str]) -> None:
        """Stop serving layers; at a later sweep when open files or the daemon do not let go."""
        gone = sorted(set(layers) - self.mounts.living(layers))
        if not gone:
            return
        try:
            self._devices.detach([Digest("sha256", hex_digest) for hex_digest in gone])
        except DaemonError as error:
            _log.info("%d layers cannot be detached: %s", len(gone), error.message)
            return
        for hex_digest in gone:
            self.mounts.forget(hex_digest)


def rootfs_mounts() -> set[tuple[str, str]]:
    """Source and mount point of all rootfs overlays in this mount namespace."""
    return {
        (point.source, point.target)
        for point in mount.mount_points(b" - overlay dsec:")
        if point.filesystem == "overlay" and point.source.startswith("dsec:")
    }


def dead_among(records: Sequence[Record]) -> list[Record]:
    """The records whose owner died, or whose mount vanished: theirs is to be undone."""
    boot, namespace = procinfo.boot_id(), procinfo.mount_namespace()
    lasting = any(record.target and not record.bound for record in records)
    mounted = rootfs_mounts() if lasting else set()  # the table of mounts may be long
    living: dict[Owner, bool] = {}  # many records have the same owner
    dead = []
    for record in records:
        owner = record.owner
        if owner not in living:
            living[owner] = owner.alive
        if record.boot != boot:
            alive = False
        elif record.namespace != namespace:
            # The number of a namespace that is gone is given to another one soon.
            owned = living[owner] or not record.bound
            alive = owned and record.namespace in procinfo.mount_namespaces()
        elif record.phase is Phase.MOUNTED and not record.bound:
            # Layers that are held for somebody have no overlay, and end by `release`.
            alive = not record.target or (record.source, record.target) in mounted
        else:
            alive = living[owner]
        if not alive:
            dead.append(record)
    return dead


def _left_behind(record: Record) -> bool:
    """Whether work is in the upper of a mount that vanished without `unmount`, as in a reboot."""
    if record.bound or record.phase is not Phase.MOUNTED or not record.own_upper:
        return False
    upper = Path(record.upper)
    return upper.is_dir() and any(upper.iterdir())


def removing(record: Record, *, keep_upper: bool) -> Record:
    """`record` in the hands of a process that undoes it."""
    return msgspec.structs.replace(
        record, phase=Phase.REMOVING, owner=Owner.current(), keep_upper=keep_upper
    )
