"""What this machine can do, found by doing it: each check tries the real thing, without a trace.

Mounts are made detached (fsmount without move_mount), so they have no mount point and vanish with
their descriptor.
"""

from __future__ import annotations

import enum
import functools
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import mount, syscalls


class Capability(enum.Enum):
    """What an operation may need from the machine; the value is the name of its test marker."""

    ROOT = "root"
    OVERLAY = "overlay"
    EROFS = "erofs"
    FUSE = "fuse"
    OCI = "oci"


@functools.cache
def missing(capability: Capability) -> CapabilityMissingError | None:
    """Why this machine lacks `capability` and how to get it, or None. Tried once in a process."""
    try:
        _CHECKS[capability]()
    except CapabilityMissingError as error:
        return error
    except OSError as error:
        return CapabilityMissingError(
            f"{capability.value} does not work here: {error}", hint=_HINTS[capability]
        )
    return None


def require(*capabilities: Capability) -> None:
    """Raise the CapabilityMissingError of the first capability that this machine lacks."""
    for capability in capabilities:
        if error := missing(capability):
            raise error


def _check_root() -> None:
    if os.geteuid() != 0:
        raise CapabilityMissingError(
            f"this needs root, and runs as uid {os.geteuid()}", hint=_HINTS[Capability.ROOT]
        )
    # Root without CAP_SYS_ADMIN, as in an unprivileged container, is refused here.
    _try_mount("tmpfs")


def _check_overlay() -> None:
    with tempfile.TemporaryDirectory(prefix="dsec-check-", dir=SCRATCH) as name:
        lower, upper, work = (Path(name, part) for part in ("lower", "upper", "work"))
        for part in (lower, upper, work):
            part.mkdir()
        with mount.overlay_view([upper, lower]):
            pass
        places = {"lowerdir": str(lower), "upperdir": str(upper), "workdir": str(work)}
        # Else its end would wait for all that anybody writes to this disk.
        _try_mount("overlay", **places, volatile=None)


def _check_erofs() -> None:
    with tempfile.TemporaryDirectory(prefix="dsec-check-", dir=SCRATCH) as name:
        image, device = Path(name, "image"), Path(name, "device")
        image.write_bytes(_empty_erofs())
        device.write_bytes(bytes(_BLOCK))
        _try_mount("erofs", source=str(image), device=str(device), directio=None, ro=None)


def _check_fuse() -> None:
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        _try_mount("fuse", fd=str(fd), rootmode="40000", user_id="0", group_id="0")
    finally:
        os.close(fd)


def _check_oci() -> None:
    from dsec_layers.linux.runtime import find_runtime

    _check_root()
    find_runtime()


def _try_mount(filesystem: str, **options: str | None) -> None:
    os.close(syscalls.detached_mount(filesystem, options.items()))


def _empty_erofs() -> bytes:
    """The smallest image with a data device: superblock, one device slot, an empty root directory.

    Format: the kernel's Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h.
    """
    image = bytearray(_BLOCK)
    directory = struct.pack("<QHBB", 40, 24, 2, 0) + struct.pack("<QHBB", 40, 25, 2, 0) + b"..."
    root_nid, magic, block_bits, device_table, device_slot = 40, 0xE0F5E1E2, 12, 0x8, 1152 // 128
    struct.pack_into("<IIIBBH", image, 1024, magic, 0, 0, block_bits, 0, root_nid)
    struct.pack_into("<QQIIII", image, 1040, 1, 0, 0, 1, 0, 0)
    struct.pack_into("<IHHH", image, 1024 + 80, device_table, 0, 1, device_slot)
    struct.pack_into("<II", image, 1152 + 64, 1, 1)
    extended_inline, mode = 1 | 2 << 1, 0o040755
    struct.pack_into("<HHHHQ", image, root_nid * 32, extended_inline, 0, mode, 0, len(directory))
    struct.pack_into("<I", image, root_nid * 32 + 44, 2)
    image[root_nid * 32 + 64 : root_nid * 32 + 64 + len(directory)] = directory
    return bytes(image)


_BLOCK = 4096
SCRATCH = "/var/tmp"  # noqa: S108 # on disk, where tmpfs or overlay would refuse; names are random (mkdtemp)
_CHECKS: dict[Capability, Callable[[], None]] = {
    Capability.ROOT: _check_root,
    Capability.OVERLAY: _check_overlay,
    Capability.EROFS: _check_erofs,
    Capability.FUSE: _check_fuse,
    Capability.OCI: _check_oci,
}
_HINTS: dict[Capability, str] = {
    Capability.ROOT: "run as root with CAP_SYS_ADMIN",
    Capability.OVERLAY: "this needs root and a kernel (6.8 or newer) with overlayfs; "
    "try: modprobe overlay",
    Capability.EROFS: "this needs root and a kernel (6.12 or newer) with EROFS on files "
    "(CONFIG_EROFS_FS_BACKED_BY_FILE), and /var/tmp on a disk file system; try: modprobe erofs",
    Capability.FUSE: "this needs root and /dev/fuse; try: modprobe fuse",
    Capability.OCI: "install crun (apt-get install crun) or runc and run as root",
}
