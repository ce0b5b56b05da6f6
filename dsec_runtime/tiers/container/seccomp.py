"""System calls that are refused in a sandbox: those of `dsec_layers`, and ioctls on file systems.

The kernel reads only the low 32 bits of an ioctl's number, so only they are compared: a rule for
the whole argument is passed by with a bit set above them.
"""

from __future__ import annotations

import base64
import contextlib
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from dsec_layers.linux import seccomp
from dsec_layers.linux.json_types import JsonObject

_LOW: Final = 0xFFFFFFFF
_COMPILED: Final = "seccomp.bpf"
_ANNOTATION: Final = "run.oci.seccomp_bpf_data"
_INSTRUCTION_BYTES: Final = 8  # struct sock_filter
# They swap, share or move the extents of files below the overlay, change what makes a file
# undeletable, or reach through to the disk. Source: include/uapi/linux/fs.h, fs/ext4/ext4.h.
IOCTLS: Final = {
    "EXT4_IOC_GROUP_EXTEND": 0x40086607,
    "EXT4_IOC_GROUP_ADD": 0x40286608,
    "EXT4_IOC_MIGRATE": 0x6609,
    "EXT4_IOC_MOVE_EXT": 0xC028660F,
    "EXT4_IOC_RESIZE_FS": 0x40086610,
    "EXT4_IOC_SWAP_BOOT": 0x6611,
    "EXT4_IOC_SHUTDOWN": 0x8004587D,
    "EXT4_IOC_CHECKPOINT": 0x4004662B,
    "EXT4_IOC_SETFSUUID": 0x4008662C,
    "XFS_IOC_SWAPEXT": 0xC0C0586D,
    "XFS_IOC_EXCHANGE_RANGE": 0x40285881,
    "FIBMAP": 0x1,
    "FIFREEZE": 0xC0045877,
    "FITHAW": 0xC0045878,
    "FITRIM": 0xC0185879,
    "FICLONE": 0x40049409,
    "FICLONERANGE": 0x4020940D,
    "FIDEDUPERANGE": 0xC0189436,
    "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC_FSSETXATTR": 0x401C5820,
    "FS_IOC_ENABLE_VERITY": 0x40806685,
    "FS_IOC_SET_ENCRYPTION_POLICY": 0x800C6613,
    "FS_IOC_ADD_ENCRYPTION_KEY": 0xC0506617,
    "TIOCLINUX": 0x541C,
}
# They need rights that nobody has here, or have none of their own business in a sandbox.
_MORE: Final = (
    *("add_key", "clock_adjtime", "clock_settime", "settimeofday", "adjtimex", "stime"),
    *("fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "io_uring_enter"),
    *("io_uring_register", "io_uring_setup", "iopl", "ioperm", "mount", "mount_setattr"),
    *(
        "move_mount",
        "move_pages",
        "migrate_pages",
        "mbind",
        "set_mempolicy",
    ),
    *("open_tree", "pivot_root", "swapon", "syslog", "umount", "umount2", "vhangup"),
)


class Compiled:
    """The profile as crun has compiled it for the first sandbox, given to it with all others.

    Compiling is a tenth of what crun costs. It leaves the filter beside the state of a container,
    and applies one that an annotation gives. The profile is given too, for those that do not know
    the annotation: they compile it. Sources: crun(1), crun's src/libcrun/seccomp.c.
    """

    def __init__(self) -> None:
        self.annotations: Mapping[str, str] = {}

    def learn(self, state: Path) -> None:
        """Find it in the state of a container that was started, unless it is known already."""
        if self.annotations:
            return
        with contextlib.suppress(FileNotFoundError):  # of another runtime, or has just ended
            found = (state / _COMPILED).read_bytes()
            if found and len(found) % _INSTRUCTION_BYTES == 0:
                self.annotations = {_ANNOTATION: base64.b64encode(found).decode()}


def profile() -> JsonObject:
    """The `linux.seccomp` object of an OCI runtime configuration."""
    found = seccomp.profile()
    rules = cast("list[JsonObject]", found["syscalls"])
    refused: JsonObject = {
        "names": sorted(set(_MORE)),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": errno.EPERM,
    }
    return {**found, "syscalls": [*rules, refused, *map(_ioctl, IOCTLS.values())]}


def _ioctl(number: int) -> JsonObject:
    low: JsonObject = {"index": 1, "value": _LOW, "valueTwo": number, "op": "SCMP_CMP_MASKED_EQ"}
    return {
        "names": ["ioctl"],
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": errno.EOPNOTSUPP,  # what a file system without it says: programs go on
        "args": [low],
    }
