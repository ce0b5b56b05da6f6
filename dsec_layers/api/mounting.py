"""Environments as directories of this machine.

Lazy, with a writable upper unless asked otherwise.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from dsec_layers.api import rootless
from dsec_layers.api.lending import secured
from dsec_layers.api.managing import client, manager
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import BusyError, CapabilityMissingError
from dsec_layers.lazyfs.rootfs import Rootfs
from dsec_layers.linux.capabilities import Capability, missing
from dsec_layers.model.reference import Reference


class Mounted(msgspec.Struct, frozen=True):
    """A mounted environment. `process` is the one with which it ends, as that of a `run`.

    A `rootless` one ends with the process that serves it; where that is None it was killed, and
    what is left of the mount gives errors until it is unmounted.
    """

    reference: str
    target: str
    read_only: bool
    upper: str | None
    layers: tuple[str, ...]
    process: int | None
    rootless: bool = False


class Unmounted(msgspec.Struct, frozen=True):
    """Where a mount was, and the folder with what was written to it, unless that is gone."""

    target: str
    upper: str | None


def mount(
    bench: Workbench,
    reference: Reference,
    target: Path,
    *,
    read_only: bool = False,
    upper: Path | None = None,
    prefetch_bytes: int | None = None,
) -> Mounted:
    """Mount an environment, or a layer on the base it was built on, until `umount`.

    `prefetch_bytes` is as for `manager`.
    Raises NotFoundError, CorruptError, BusyError, CapabilityMissingError, DaemonError, StoreError.
    """
    if error := missing(Capability.ROOT):
        raise CapabilityMissingError(
            error.message, hint=f"{error.hint}; or mount it read-only for yourself with --rootless"
        )
    with secured(bench, reference) as stack:
        made = manager(bench, stack, prefetch_bytes).mount(
            stack.layers, target, read_only=read_only, upper=upper, name=str(reference)
        )
    return _mounted(made)


def mount_rootless(
    bench: Workbench, reference: Reference, target: Path, *, note: Callable[[str], object]
) -> Mounted:
    """The same read-only for a user without root; see `rootless.mount`."""
    return _rootless(rootless.mount(bench, reference, target, note=note))


def serve_rootless(
    bench: Workbench,
    reference: Reference,
    target: Path,
    *,
    note: Callable[[str], object],
    ready: Callable[[Mounted], object],
) -> None:
    """The same, served by this process until it is unmounted; see `rootless.mount_here`."""
    rootless.mount_here(
        bench, reference, target, note=note, ready=lambda row: ready(_rootless(row))
    )


@contextlib.contextmanager
def mounted(
    bench: Workbench,
    reference: Reference,
    target: Path | None = None,
    *,
    read_only: bool = False,
    extra_lowers: Sequence[Path] = (),
    prefetch_bytes: int | None = None,
) -> Iterator[Rootfs]:
    """The same for the length of a block. Raises as `mount`."""
    with (
        secured(bench, reference) as stack,
        manager(bench, stack, prefetch_bytes).mounted(
            stack.layers,
            target,
            read_only=read_only,
            extra_lowers=extra_lowers,
            name=str(reference),
        ) as rootfs,
    ):
        yield rootfs


def umount(
    bench: Workbench, target: Path, *, keep_upper: bool = False, lazy: bool = False
) -> Unmounted:
    """Undo `mount` of either kind. Raises NotFoundError or BusyError, which names who uses it."""
    if rootless.umount(bench, target, lazy=lazy):
        return Unmounted(str(target.resolve()), None)
    rootfs_manager = manager(bench)
    where = target.resolve()
    uppers = [rootfs.upper for rootfs in rootfs_manager.list() if rootfs.target == where]
    rootfs_manager.unmount(where, keep_upper=keep_upper, lazy=lazy)
    left = [str(upper) for upper in uppers if upper is not None and upper.is_dir()]
    return Unmounted(str(where), left[0] if left else None)


def umount_all(
    bench: Workbench, *, keep_upper: bool = False, lazy: bool = False
) -> tuple[Unmounted, ...]:
    """Undo every `mount` of this home; a `run` goes on.

    Those in use stay, and the others go: then BusyError is raised.
    """
    mounts = list_mounts(bench)
    targets = [Path(each.target) for each in mounts if each.rootless or each.process is None]
    busy: list[BusyError] = []
    done: list[Unmounted] = []
    for target in targets:
        try:
            done.append(umount(bench, target, keep_upper=keep_upper, lazy=lazy))
        except BusyError as error:
            busy.append(error)
    if busy:
        raise BusyError("; ".join(error.message for error in busy), hint=busy[0].hint)
    return tuple(done)


def list_mounts(bench: Workbench) -> list[Mounted]:
    """What is mounted now; those of root only where root asks."""
    found = [_rootless(row) for row in rootless.list_mounts(bench)]
    if missing(Capability.ROOT) is None:
        found += [_mounted(rootfs) for rootfs in manager(bench).list()]
    return found


def stop_daemon(bench: Workbench, *, force: bool = False) -> bool:
    """End the lazy file system daemon; False when it did not run.

    The kernel lets go of a layer a moment after its last mount is gone: that is waited for. Raises
    BusyError while anything is mounted, unless forced.
    """
    rootfs_manager = manager(bench)
    give_up = time.monotonic() + _RELEASE_PATIENCE_S
    while True:
        rootfs_manager.reconcile()
        try:
            return client(bench).stop(force=force)
        except BusyError:
            if rootfs_manager.list() or time.monotonic() > give_up:
                raise
        time.sleep(_RELEASE_POLL_S)


_RELEASE_PATIENCE_S = 2.0
_RELEASE_POLL_S = 0.02


def _rootless(row: rootless.RootlessMounted) -> Mounted:
    return Mounted(
        reference=row.reference,
        target=row.target,
        read_only=True,
        upper=None,
        layers=row.layers,
        process=row.server,
        rootless=True,
    )


def _mounted(rootfs: Rootfs) -> Mounted:
    return Mounted(
        reference=rootfs.name,
        target=str(rootfs.target),
        read_only=rootfs.read_only,
        upper=str(rootfs.upper) if rootfs.upper else None,
        layers=tuple(str(digest) for digest in rootfs.layers),
        process=rootfs.pid if rootfs.bound else None,
    )
