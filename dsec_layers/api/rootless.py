"""Environments mounted without root: read-only, by a process of the user's own.

The kernel asks that process for every file through FUSE, which the program fusermount3 mounts for
any user. There is no overlay and no daemon; the cache of chunks is the same.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.errors import BusyError, DaemonError
from dsec_layers.lazyfs import protocol
from dsec_layers.lazyfs.rootlessmounts import RootlessMount, RootlessMounts
from dsec_layers.lazyfs.targets import check_place
from dsec_layers.linux import detached, fusermount, procinfo
from dsec_layers.model.reference import Reference

if TYPE_CHECKING:
    from dsec_layers.api.rootlessserver import Wanted

_START_S = 300.0  # composing a million files takes a while
_END_S = 30.0
_SHOWN_USERS = 5


class RootlessMounted(msgspec.Struct, frozen=True):
    """A rootless mount. `server` is the process behind it; None when that is gone.

    Then the mount gives errors until it is unmounted.
    """

    reference: str
    target: str
    layers: tuple[str, ...]
    server: int | None


def mount(
    bench: Workbench, reference: Reference, target: Path, *, note: Callable[[str], object]
) -> RootlessMounted:
    """Mount an environment for this user until `umount`; a process that serves it goes on.

    `note` is told when what a killed server left had to be removed first. Raises NotFoundError,
    CorruptError, BusyError, CapabilityMissingError, DaemonError, InvalidInputError, SignatureError
    or StoreError.
    """
    mounts = RootlessMounts(bench.home.run)
    with _wanted(bench, reference, target, mounts, note) as wanted:
        argv = [sys.executable, "-P", "-m", "dsec_layers.rootless"]
        argv += ["--home", str(bench.home.root), "--id", wanted.id, "--name", wanted.name]
        argv += [word for url in bench.stores for word in ("--store", url)]
        argv += ["--made-target"] if wanted.made_target else []
        argv += [str(wanted.reference), str(wanted.target)]
        try:
            complaint = detached.start(argv, log=mounts.log, timeout_s=_START_S)
        except TimeoutError as error:
            raise DaemonError(
                f"the mount is not ready after {_START_S:.0f} s", hint=f"see {mounts.log}"
            ) from error
        if complaint:
            protocol.decode_answer(complaint.encode(), protocol.Done)
        if complaint is not None:
            raise DaemonError("the server of the mount ended at once", hint=f"see {mounts.log}")
    record = mounts.at(wanted.target)
    if record is None:
        raise DaemonError(f"{target} was unmounted at once", hint=f"see {mounts.log}")
    return _row(record)


def mount_here(
    bench: Workbench,
    reference: Reference,
    target: Path,
    *,
    note: Callable[[str], object],
    ready: Callable[[RootlessMounted], object],
) -> None:
    """The same, served by this process; returns when it is unmounted, and unmounts when it ends.

    `ready` is called when it is mounted. Raises as `mount`.
    """
    from dsec_layers.api.rootlessserver import serve

    mounts = RootlessMounts(bench.home.run)
    with _wanted(bench, reference, target, mounts, note) as wanted:

        def mounted(_: Stack) -> None:
            record = mounts.at(wanted.target)
            if record is not None:
                ready(_row(record))

        serve(bench, wanted, threading.Event(), mounted)


def umount(bench: Workbench, target: Path, *, lazy: bool = False) -> bool:
    """Undo `mount`, whether its server lives or not. False when there is no such mount.

    Returns when the server is gone, unless `lazy`. Raises BusyError naming who uses it, or
    CapabilityMissingError.
    """
    where = target.resolve()
    mounts = RootlessMounts(bench.home.run)
    record = mounts.at(where)
    if record is None:
        return False
    try:
        fusermount.unmount(where, lazy=lazy)
    except BusyError as error:
        users = ", ".join(map(str, islice(procinfo.users_below(where), _SHOWN_USERS)))
        raise BusyError(
            f"{where} is in use{' by ' if users else ''}{users}",
            hint="end what uses it, or take it out of sight with --lazy",
        ) from error
    if not record.served:
        mounts.drop(record)
    elif not (detached.wait_for_exit(record.server.pid, 0 if lazy else _END_S) or lazy):
        raise DaemonError(f"process {record.server.pid} does not end", hint=f"see {mounts.log}")
    return True


def list_mounts(bench: Workbench) -> list[RootlessMounted]:
    """What is mounted now, dead or alive, in this mount namespace."""
    records = RootlessMounts(bench.home.run).listed()
    return [_row(record) for record in records if record.mounted]


@contextlib.contextmanager
def _wanted(
    bench: Workbench,
    reference: Reference,
    target: Path,
    mounts: RootlessMounts,
    note: Callable[[str], object],
) -> Iterator[Wanted]:
    """What may be mounted, with all metadata here; a mount point that was made goes on failure."""
    from dsec_layers.api.rootlessserver import Wanted  # much, which mounts with root do not need

    fusermount.require()
    where = target.resolve()
    mounts.create()
    _clear(mounts, where, note)
    check_place(where, bench.home.root)
    stack = bench.stack(reference)
    bench.check_packs(stack.layers)
    with contents.opened(bench, stack.layers):
        pass
    made = not where.exists()
    where.mkdir(parents=True, exist_ok=True)
    pinned = reference.pinned(stack.descriptor.parsed_digest)
    try:
        yield Wanted(secrets.token_hex(6), pinned, str(reference), where, made)
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                where.rmdir()
        raise


def _clear(mounts: RootlessMounts, where: Path, note: Callable[[str], object]) -> None:
    """Unmount what a killed server has left at `where`, and forget others that are gone."""
    left = mounts.at(where)
    if left is not None and not left.served:
        fusermount.unmount(where, lazy=True)
        mounts.drop(left)
        note(f"{where} held {left.name}, whose server was killed: unmounted")
    mounts.sweep()


def _row(record: RootlessMount) -> RootlessMounted:
    return RootlessMounted(
        reference=record.name,
        target=record.target,
        layers=tuple(f"sha256:{each}" for each in record.layers),
        server=record.server.pid if record.served else None,
    )
