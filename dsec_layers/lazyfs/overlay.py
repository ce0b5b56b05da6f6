"""The overlay of one rootfs: its folders, its mount, and how they are undone, however often."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from dsec_layers.errors import (
    DISK_FULL,
    BusyError,
    CapabilityMissingError,
    DsecError,
    InvalidInputError,
    NoSpaceError,
)
from dsec_layers.lazyfs.journal import Record
from dsec_layers.linux import mount, procinfo

_KERNEL_XATTRS = b"trusted.overlay."
_ESCAPED_XATTRS = b"trusted.overlay.overlay."


def mount_rootfs(record: Record, lowers: Sequence[Path], *, volatile: bool = False) -> None:
    """Mount the overlay that `record` tells of; `lowers` are topmost first, at least two.

    Raises CapabilityMissingError, InvalidInputError, NoSpaceError or DsecError. What was made until
    then stays for `remove_folders`.
    """
    upper = Path(record.upper) if record.upper else None
    work = Path(record.work) if record.work else None
    try:
        Path(record.target).mkdir(parents=True, exist_ok=True)
        if upper is not None and work is not None:
            _prepare_upper(upper, work, model=lowers[0])
        mount.mount_overlay(
            Path(record.target),
            lowers,
            upper=upper,
            work=work,
            volatile=volatile,
            source=record.source,
        )
    except OSError as error:
        raise _explained(error, record) from error
    if upper is not None:
        _check_writable(record)


def find(record: Record) -> mount.MountPoint | None:
    """The overlay mount of `record` on its target, or None."""
    found = None
    for point in mount.mount_points(record.source.encode()):
        if point.source == record.source and point.target == record.target:
            found = point
    return found


def unmount_rootfs(record: Record, *, lazy: bool) -> None:
    """Unmount the overlay if it is mounted. Raises BusyError naming its users, unless `lazy`."""
    if not record.target or find(record) is None:
        return
    try:
        mount.unmount(Path(record.target), lazy=lazy)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise CapabilityMissingError(f"cannot unmount: {error}", hint="run as root") from error
        if error.errno != errno.EBUSY:
            raise
        raise BusyError(
            f"{record.target} is in use{_users(Path(record.target))}",
            hint="end the processes that use it, or unmount lazily (--lazy)",
        ) from error


def remove_folders(record: Record, folder: Path, *, keep_upper: bool) -> None:
    """Remove what mounting made: work folder, upper, mount point, and `folder`, its own one."""
    if record.work:
        shutil.rmtree(record.work, ignore_errors=True)
    if record.made_target:
        _remove_empty(Path(record.target))
    if record.own_upper and not keep_upper:
        shutil.rmtree(record.upper, ignore_errors=True)
    _remove_empty(folder)


def _prepare_upper(upper: Path, work: Path, *, model: Path) -> None:
    """The upper's root covers the layers' root: a new one takes over its attributes."""
    work.mkdir(parents=True, exist_ok=True)
    if upper.exists():
        return
    upper.mkdir(parents=True)
    status = model.stat()
    os.chown(upper, status.st_uid, status.st_gid)
    upper.chmod(status.st_mode & 0o7777)
    for name in map(os.fsencode, os.listxattr(model)):
        if not name.startswith(_KERNEL_XATTRS) or name.startswith(_ESCAPED_XATTRS):
            os.setxattr(upper, name, os.getxattr(model, name))
    os.utime(upper, ns=(status.st_mtime_ns, status.st_mtime_ns))


def _check_writable(record: Record) -> None:
    """The kernel mounts read-only, without an error, when it cannot use the work folder."""
    if os.statvfs(record.target).f_flag & os.ST_RDONLY:
        raise CapabilityMissingError(
            f"the kernel mounted {record.target} read-only: it cannot use {record.work}",
            hint="put the upper on a local disk file system such as ext4 or xfs",
        )


def _explained(error: OSError, record: Record) -> DsecError:
    if error.errno in DISK_FULL:
        return NoSpaceError(f"no space left to mount {record.target}: {error}")
    if error.errno == errno.EINVAL and record.upper:
        return CapabilityMissingError(
            f"cannot mount {record.target} with the upper {record.upper}: {error.strerror}",
            hint="put the upper on a local disk file system such as ext4 or xfs",
        )
    if error.errno in (errno.ENOTDIR, errno.ENOENT, errno.ELOOP):
        return InvalidInputError(f"cannot mount {record.target}: {error}")
    return DsecError(f"cannot mount {record.target}: {error}")


def _users(target: Path) -> str:
    below = [
        point.target for point in mount.mount_points() if Path(point.target).is_relative_to(target)
    ]
    mounts = [f"a mount on {path}" for path in below if path != str(target)]
    users = [*mounts, *map(str, islice(procinfo.users_below(target), 5))]
    return f" by {', '.join(users)}" if users else ""


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
