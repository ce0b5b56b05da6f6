"""Where a rootfs may be mounted and where its upper may lie, checked before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dsec_layers.errors import BusyError, InvalidInputError
from dsec_layers.lazyfs.journal import Phase, Record
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.linux import mount

MAX_PATH_BYTES = 255  # what fsconfig(2) takes


def check_layers(layers: Sequence[MountLayer], extra_lowers: Sequence[Path]) -> None:
    """Raises InvalidInputError when these layers and lowers, and one more, cannot be stacked."""
    if not layers:
        raise InvalidInputError("there is no layer to mount")
    most = mount.MAX_OVERLAY_LAYERS - 1 - len(extra_lowers)
    if len(layers) > most:
        raise InvalidInputError(
            f"{len(layers)} layers are too many: the kernel stacks {most}",
            hint="fold some layers into one",
        )
    if len({layer.digest for layer in layers}) != len(layers):
        raise InvalidInputError("the same layer is given twice")


def check_home(home: Path) -> None:
    """Raises InvalidInputError for a state folder whose files the kernel cannot be told of."""
    check_path(home / "run" / "layers" / ("0" * 64))
    if "," in str(home):
        raise InvalidInputError(f"the state folder must not have a comma in its path: {home}")


def check_lowers(lowers: Sequence[Path]) -> None:
    """Raises InvalidInputError for an extra lower that is no folder."""
    for lower in lowers:
        check_path(lower)
        if not lower.is_dir():
            raise InvalidInputError(f"{lower} is not a folder that could lie below the layers")


def check_path(path: Path) -> None:
    """Raises InvalidInputError for a path that mount calls or the journal cannot take."""
    raw = os.fsencode(path)
    if len(raw) > MAX_PATH_BYTES:
        raise InvalidInputError(f"path is longer than {MAX_PATH_BYTES} bytes: {path}")
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise InvalidInputError(f"path is not UTF-8: {raw!r}") from None


def check_target(wanted: Record, home: Path, others: Iterable[Record]) -> None:
    """Raises BusyError for a target in use, InvalidInputError for one that cannot be mounted on."""
    target = Path(wanted.target)
    for record in others:
        if record.target == wanted.target and record.here:
            what = record.name or "something"
            if record.bound or record.phase is not Phase.MOUNTED:
                what += f", of process {record.owner.pid},"
            raise BusyError(f"{what} is mounted on {target}", hint=f"dsec-layers umount {target}")
    check_place(target, home, own=home / "run" / "rootfs" / wanted.id)


def check_place(target: Path, home: Path, own: Path | None = None) -> None:
    """The same for whoever keeps no journal; `own` is where the state folder may be mounted on."""
    check_path(target)
    if not _absent(target) and mount.mounted_at(target) is not None:
        raise BusyError(f"{target} is a mount point already", hint="take another, or unmount it")
    if _within(home, target):
        raise InvalidInputError(f"mounting on {target} would hide the state folder {home}")
    if _within(target, home) and not (own and _within(target, own)):
        raise InvalidInputError(f"{target} lies in the state folder {home}")
    _check_empty_folder(target)


def check_upper(wanted: Record, others: Iterable[Record]) -> None:
    """Raises BusyError when another overlay writes to the upper: the kernel would not refuse it."""
    upper, target = Path(wanted.upper), Path(wanted.target)
    check_path(Path(wanted.work))
    if upper.exists() and not upper.is_dir():
        raise InvalidInputError(f"the upper {upper} is not a folder")
    if _within(upper, target) or _within(target, upper):
        raise InvalidInputError(
            f"the upper {upper} and the mount point {target} lie in one another"
        )
    used = any(record.upper == wanted.upper and record.here for record in others)
    if used or (upper.exists() and _written_to(upper)):
        raise BusyError(f"the upper {upper} is in use by another rootfs")


def _absent(path: Path) -> bool:
    """Whether nothing is there, so that nobody need look into the table of mounts, a long one."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:  # a mount whose server has died
        return False
    return False


def _written_to(upper: Path) -> bool:
    overlays = mount.mount_points(mount.mark(upper))
    return any(f"upperdir={upper}" in point.options for point in overlays)


def _check_empty_folder(target: Path) -> None:
    try:
        content = next(target.iterdir(), None)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise InvalidInputError(f"the mount point {target} is not a folder") from None
    if content is not None:
        raise InvalidInputError(
            f"the mount point {target} is not empty: it holds {content.name!r}",
            hint="take an empty or a new folder",
        )


def _within(inner: Path, outer: Path) -> bool:
    return inner == outer or outer in inner.parents
