"""Mounts the way this project needs them.

EROFS from a file with a data device, overlay of many layers, bind, unmount.

mount(8) would put a loop device under EROFS and cut long option strings, so the calls are made
here, in-process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import syscalls

MAX_OVERLAY_LAYERS = 500


class MountPoint(msgspec.Struct, frozen=True):
    """One line of /proc/thread-self/mountinfo."""

    mount_id: int
    device: str
    target: str
    filesystem: str
    source: str
    options: frozenset[str]


def mount_erofs(
    metadata: Path, target: Path, *, device: Path | None, direct_io: bool = True
) -> None:
    """Mount the EROFS image `metadata`, its data in the file `device`, read-only.

    The kernel accepts a missing or short device and fails later with EIO: check both before. Raises
    OSError, or CapabilityMissingError where EROFS or file-backed mounts are missing.
    """
    options = [f"device={device}"] if device else []
    if direct_io:
        options.append("directio")
    try:
        syscalls.mount(
            str(metadata), str(target), "erofs", syscalls.MS_RDONLY, ",".join(options) or None
        )
    except OSError as error:
        raise _explain(error, "erofs") from error


def mount_overlay(
    target: Path,
    lowers: Sequence[Path],
    *,
    upper: Path | None = None,
    work: Path | None = None,
    volatile: bool = False,
    source: str = "overlay",
) -> None:
    """Mount an overlay on `target`.

    `lowers` lists the topmost layer first. Without `upper` it is read-only. `source` is the name
    that mountinfo shows.

    Redirects, metacopy and the index are off, so that the upper holds plain files which can be
    packed. Raises OSError, CapabilityMissingError, or ValueError for more than 500 layers.
    """
    options: list[tuple[str, str | None]] = [("source", source)]
    options += [("lowerdir+", str(lower)) for lower in lowers]
    if upper is not None and work is not None:
        options += [("upperdir", str(upper)), ("workdir", str(work))]
        options += [(key, "off") for key in ("redirect_dir", "metacopy", "index")]
        options += [("volatile", None)] if volatile else []
    mounted = _detached_overlay(lowers, options, read_only=upper is None)
    try:
        syscalls.move_mount(mounted, str(target))
    finally:
        os.close(mounted)


@contextlib.contextmanager
def overlay_view(lowers: Sequence[Path]) -> Iterator[Path]:
    """A path of this process that shows `lowers` (topmost first) stacked and read-only.

    It is mounted nowhere and ends with the context. Raises what `mount_overlay` raises.
    """
    if len(lowers) == 1:  # overlayfs wants two
        yield lowers[0]
        return
    options: list[tuple[str, str | None]] = [("lowerdir+", str(lower)) for lower in lowers]
    mounted = _detached_overlay(lowers, options, read_only=True)
    try:
        yield Path(f"/proc/self/fd/{mounted}")
    finally:
        os.close(mounted)


def _detached_overlay(
    lowers: Sequence[Path], options: Sequence[tuple[str, str | None]], *, read_only: bool
) -> int:
    if len(lowers) > MAX_OVERLAY_LAYERS:
        raise ValueError(f"overlay takes at most {MAX_OVERLAY_LAYERS} layers, got {len(lowers)}")
    try:
        return syscalls.detached_mount(
            "overlay",
            options,
            syscalls.MOUNT_ATTR_RDONLY if read_only else 0,
        )
    except OSError as error:
        raise _explain(error, "overlay") from error


def mount_tmpfs(target: Path, *, options: str = "mode=0755") -> None:
    """Mount an empty tmpfs on `target`."""
    syscalls.mount("tmpfs", str(target), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def unmount(target: Path, *, lazy: bool = False) -> None:
    """Unmount `target`.

    `lazy` detaches it at once and finishes when its last user is gone. Raises OSError (EBUSY).
    """
    syscalls.umount2(str(target), syscalls.UMOUNT_NOFOLLOW | (syscalls.MNT_DETACH if lazy else 0))


def mount_points(mark: bytes = b"") -> Iterator[MountPoint]:
    """The mounts of the calling thread's namespace, in mount order.

    Only those whose line has `mark` in it: with a thousand mounts parsing takes much longer than
    looking for something.
    """
    for line in Path("/proc/thread-self/mountinfo").read_bytes().splitlines():
        if mark not in line:
            continue
        head, _, tail = line.partition(b" - ")
        fields, (filesystem, source, options) = head.split(b" "), tail.split(b" ", 2)
        yield MountPoint(
            mount_id=int(fields[0]),
            device=fields[2].decode(),
            target=_unescape(fields[4]),
            filesystem=filesystem.decode(),
            source=_unescape(source),
            options=frozenset(
                fields[5].decode().split(",") + options.decode(errors="replace").split(",")
            ),
        )


def mark(path: Path) -> bytes:
    """What a line of mountinfo has in it that names `path`."""
    return os.fsencode(_ESCAPED.split(str(path), maxsplit=1)[0])


def mounted_at(target: Path) -> MountPoint | None:
    """The topmost mount whose mount point is exactly `target`, or None."""
    wanted = str(target.absolute())
    found = None
    for mount_point in mount_points(mark(target.absolute())):
        if mount_point.target == wanted:
            found = mount_point
    return found


_ESCAPED = re.compile(r"[\s\\#,:]")  # what mountinfo writes in another way


def _unescape(field: bytes) -> str:
    if b"\\" in field:
        field = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)
    return os.fsdecode(field)


def _explain(error: OSError, filesystem: str) -> Exception:
    if error.errno in (errno.EPERM, errno.EACCES):
        return CapabilityMissingError(
            f"cannot mount {filesystem}: {error}",
            hint="mounting needs root (CAP_SYS_ADMIN); run as root",
        )
    if error.errno in (errno.ENODEV, errno.ENOTBLK, errno.ENOSYS):
        return CapabilityMissingError(
            f"cannot mount {filesystem}: {error}",
            hint="--home must be on a disk file system such as ext4 or xfs, not tmpfs or overlay; "
            f"and the kernel 6.12 or newer, with {filesystem}",
        )
    return error
