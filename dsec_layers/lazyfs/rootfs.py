"""Root file systems from layers: each layer mounted once a node, an overlay for each rootfs.

    DSEC_HOME/run/layers/<layer hex>/      EROFS mounts (layermounts.py)
    DSEC_HOME/run/rootfs/<id>/upper, work  the writable part of a rootfs, unless another is given
    DSEC_HOME/run/rootfs/<id>/root         its mount point, unless another is given
    DSEC_HOME/run/empty/                   the second lower of an overlay of one layer

A change is written to the journal first (journal.py), and every operation begins by undoing what
the dead have left, so a process may be killed at any moment. `<id>` folders without a record are
uppers that were kept on purpose.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dsec_layers.errors import (
    BusyError,
    CapabilityMissingError,
    NoSpaceError,
    NotFoundError,
)
from dsec_layers.lazyfs import overlay, targets
from dsec_layers.lazyfs.devices import Devices
from dsec_layers.lazyfs.journal import LayerUse, Phase, Record, uses_here
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.lazyfs.prepared import PreparedLayer, prepare
from dsec_layers.lazyfs.reconcile import Janitor, Reconciled, dead_among, removing
from dsec_layers.lazyfs.wish import Wish
from dsec_layers.model.digest import Digest

_HELD = "held-"  # of the ids of records


@dataclass(frozen=True, slots=True)
class Rootfs:
    """A mounted environment. `layers` are lowest first; `bound` ones end with the process `pid`."""

    id: str
    name: str
    target: Path
    layers: tuple[Digest, ...]
    read_only: bool
    upper: Path | None
    bound: bool
    pid: int

    @classmethod
    def of(cls, record: Record) -> Rootfs:
        """What the journal knows of it."""
        return cls(
            id=record.id,
            name=record.name,
            target=Path(record.target),
            layers=tuple(Digest("sha256", use.hex) for use in record.layers),
            read_only=record.read_only,
            upper=Path(record.upper) if record.upper else None,
            bound=record.bound,
            pid=record.owner.pid,
        )


class RootfsManager:
    """Mounts and unmounts on this node. Safe to use from many threads and processes.

    Layers are always given lowest first. `trace` is told each step of a change, for tests.
    """

    def __init__(
        self, home: Path, devices: Devices, *, trace: Callable[[str], None] = lambda _: None
    ) -> None:
        self._home = home.resolve()
        targets.check_home(self._home)
        run = self._home / "run"
        self._empty = run / "empty"
        self._devices = devices
        self._trace = trace
        self._images = MetadataImages(self._home)
        self._janitor = Janitor(run, devices, trace)
        self._journal = self._janitor.journal
        self._mounts = self._janitor.mounts

    def mount(
        self,
        layers: Sequence[MountLayer],
        target: Path,
        *,
        read_only: bool = False,
        upper: Path | None = None,
        extra_lowers: Sequence[Path] = (),
        name: str = "",
    ) -> Rootfs:
        """Mount an environment on `target` until `unmount`.

        `target` is an empty directory, or is made. Changes go to `upper`, or to a folder of the
        rootfs's own. `extra_lowers` lie below all layers, topmost first. Raises BusyError,
        InvalidInputError, CapabilityMissingError, NoSpaceError, or what blobs and devices raise.
        """
        wish = Wish(
            layers=layers,
            target=target.resolve(),
            read_only=read_only,
            upper=upper,
            extra_lowers=extra_lowers,
            name=name,
            bound=False,
        )
        return Rootfs.of(self._mount(wish))

    @contextlib.contextmanager
    def mounted(
        self,
        layers: Sequence[MountLayer],
        target: Path | None = None,
        *,
        read_only: bool = False,
        upper: Path | None = None,
        extra_lowers: Sequence[Path] = (),
        on_layers: Callable[[Sequence[Path]], None] = lambda _: None,
        name: str = "",
    ) -> Iterator[Rootfs]:
        """The same for the length of a block, or of this process.

        Without `target` one is chosen. An upper of the rootfs's own is gone afterwards, and is
        never synced to disk. `on_layers` is called with the folders of the layers, lowest first,
        when they are mounted and the overlay is not: the moment to fill an extra lower.
        """
        wish = Wish(
            layers=layers,
            read_only=read_only,
            upper=upper,
            extra_lowers=extra_lowers,
            on_layers=on_layers,
            name=name,
            bound=True,
        )
        where = target.resolve() if target else self._janitor.folder(wish.id) / "root"
        record = self._mount(dataclasses.replace(wish, target=where))
        try:
            yield Rootfs.of(record)
        finally:
            self._janitor.undo_forced(record)

    @contextlib.contextmanager
    def layer_dirs(self, layers: Sequence[MountLayer]) -> Iterator[tuple[Path, ...]]:
        """Mount only the layers, for the length of a block, and yield their folders in order.

        These show whiteouts as 0:0 devices, and escaped attributes as they are stored.
        """
        record = self._mount(Wish(layers=layers, bound=True))
        try:
            yield tuple(self._mounts.path(use.hex) for use in record.layers)
        finally:
            self._janitor.undo_forced(record)

    def hold(self, layers: Sequence[MountLayer], holder: str) -> tuple[Path, ...]:
        """Mount only the layers, for a holder that is no process, and return their folders.

        They stay until `release`, whoever ends meanwhile, or the boot. What the name holds already
        is replaced. For whoever stacks the layers himself, see `layer_dirs`.
        """
        record = self._mount(Wish(layers=layers, bound=False, name=holder, id=f"{_HELD}{holder}"))
        return tuple(self._mounts.path(use.hex) for use in record.layers)

    def release(self, holder: str) -> None:
        """Undo `hold`; nothing happens when nothing is held."""
        for record in self._journal.records():
            if record.id == f"{_HELD}{holder}":
                self._janitor.undo(record, lazy=False)

    def held(self) -> dict[str, tuple[Digest, ...]]:
        """The layers that are held, by holder."""
        return {
            record.name: tuple(Digest("sha256", use.hex) for use in record.layers)
            for record in self._journal.records()
            if record.id.startswith(_HELD) and record.here and record.phase is Phase.MOUNTED
        }

    def unmount(self, target: Path, *, keep_upper: bool = False, lazy: bool = False) -> None:
        """Undo `mount`. The upper goes too, unless the caller gave it or it is kept.

        Raises NotFoundError, or BusyError naming the users; with `lazy` the rootfs is out of sight
        at once and ends with its last user.
        """
        original = self._begin_removal(target.resolve(), keep_upper=keep_upper)
        self._trace("removing")
        try:
            self._janitor.undo(removing(original, keep_upper=keep_upper), lazy=lazy)
        except (BusyError, CapabilityMissingError):
            with self._journal.locked():
                self._journal.put(original)
            raise

    def list(self) -> tuple[Rootfs, ...]:
        """The rootfs mounts of this node, in order of their mount points."""
        records = self._journal.records()
        dead = dead_among(records)
        found = [
            Rootfs.of(record)
            for record in records
            if record.target and record.phase is Phase.MOUNTED and record not in dead
        ]
        return tuple(sorted(found, key=lambda rootfs: rootfs.target))

    def reconcile(self) -> Reconciled:
        """Undo what dead processes and reboots have left. Mounts nothing."""
        self._images.sweep()
        with self._journal.locked():
            return self._janitor.sweep()[0]

    def _mount(self, wish: Wish) -> Record:
        targets.check_layers(wish.layers, wish.extra_lowers)
        targets.check_lowers(wish.extra_lowers)
        record = self._claim(wish)
        try:
            self._trace("claimed")
            mounted = self._mounts.mounted(layer.digest.hex for layer in wish.layers)
            prepared = prepare(wish.layers, self._images, self._devices, mounted)
            self._trace("prepared")
            uses = tuple(LayerUse(layer.hex, layer.device_identity) for layer in prepared)
            record = msgspec.structs.replace(record, layers=uses)
            with self._journal.locked():
                self._journal.put(record)
                self._mount_layers(record, prepared)
                wish.on_layers([self._mounts.path(use.hex) for use in record.layers])
                self._mount_overlay(record, wish.extra_lowers)
                record = msgspec.structs.replace(record, phase=Phase.MOUNTED)
                self._journal.put(record)
        except BaseException:
            self._janitor.undo(record, lazy=True)
            raise
        self._trace("mounted")
        return record

    def _claim(self, wish: Wish) -> Record:
        """Write down who will use which layers and where, once the leftovers of others are gone."""
        with self._journal.locked():
            _, others = self._janitor.sweep()
            record = wish.record(self._janitor.folder(wish.id))
            if record.target:
                targets.check_target(record, self._home, others)
            if record.upper:
                targets.check_upper(record, others)
            self._journal.put(record)
        return record

    def _mount_layers(self, record: Record, prepared: Sequence[PreparedLayer]) -> None:
        """A layer mount is used again only while it stands on the device file served today."""
        others = (other for other in self._journal.records() if other.id != record.id)
        current = uses_here(others)
        mounted = self._mounts.mounted(layer.hex for layer in prepared)
        wanted = []
        for layer in prepared:
            if layer.hex in mounted:
                if LayerUse(layer.hex, layer.device_identity) in current:
                    continue
                self._mounts.unmount(layer.hex)
            if not layer.checked:  # it was mounted a moment ago
                self._images.ensure(layer.layer)
            wanted.append((layer.hex, layer.metadata, layer.device))
        self._mounts.mount(wanted)
        self._trace("layers mounted")

    def _mount_overlay(self, record: Record, extra_lowers: Sequence[Path]) -> None:
        if not record.target:
            return
        layers = [self._mounts.path(use.hex) for use in reversed(record.layers)]
        self._empty.mkdir(mode=0o755, exist_ok=True)
        lowers = [*layers, *extra_lowers, self._empty]
        overlay.mount_rootfs(record, lowers, volatile=record.bound and record.own_upper)
        self._trace("overlay mounted")

    def _begin_removal(self, target: Path, *, keep_upper: bool) -> Record:
        """Become the owner of the rootfs on `target`; its record as it was."""
        with self._journal.locked():
            _, living = self._janitor.sweep()
            found = [record for record in living if record.target == str(target)]
            if not found:
                raise NotFoundError(
                    f"no rootfs is mounted on {target}",
                    hint="`dsec-layers mount` without arguments lists what is mounted",
                )
            record = found[0]
            if not record.here:
                raise BusyError(f"{target} is mounted in another mount namespace")
            if record.bound or record.phase is not Phase.MOUNTED:
                raise BusyError(f"{target} belongs to process {record.owner.pid}, which still runs")
            with contextlib.suppress(NoSpaceError):  # removing is what frees the disk
                self._journal.put(removing(record, keep_upper=keep_upper))
        return record
