"""Mounting FUSE as any user, through the setuid program that FUSE has for it: fusermount3.

The program opens /dev/fuse, mounts, and sends the descriptor back over the socket that
`_FUSE_COMMFD` names; libfuse uses it the same way. Only the user who mounted sees what is inside,
not even root does, set-user-id bits and device nodes have no effect, and only he may unmount.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsec_layers.errors import BusyError, CapabilityMissingError
from dsec_layers.linux import mount as mounts
from dsec_layers.linux import process
from dsec_layers.linux.fuse import MAX_REQUEST_BYTES

_PROGRAMS: Final = ("fusermount3", "fusermount")
_DEVICE: Final = Path("/dev/fuse")
_INSTALL: Final = "install it: apt-get install fuse3, or dnf install fuse3"


def require() -> str:
    """The program. Raises CapabilityMissingError naming what this machine or this user lacks."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise CapabilityMissingError("fusermount3 is not installed", hint=_INSTALL)
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError as error:
        raise CapabilityMissingError(
            f"uid {os.geteuid()} may not open {_DEVICE}",
            hint=f"have root do what most distributions do: chmod 666 {_DEVICE}",
        ) from error
    except OSError as error:
        raise CapabilityMissingError(
            f"{_DEVICE} cannot be opened: {error.strerror}",
            hint="have root load the module: modprobe fuse; "
            "in a container, start it with --device /dev/fuse",
        ) from error
    return program


def mount(target: Path, source: str) -> int:
    """Mount a new FUSE connection read-only on `target`; returns its descriptor.

    `source` is the name that mountinfo shows. Raises CapabilityMissingError.
    """
    program = require()
    options = f"ro,nosuid,nodev,max_read={MAX_REQUEST_BYTES},fsname={source},subtype=dsec"
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            environ = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
            argv = [program, "-o", options, "--", str(target)]
            with process.start(argv, env=environ, pass_fds=(theirs.fileno(),)) as child:
                complaint = child.communicate()[1].decode(errors="replace").strip()
        _, fds, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if child.returncode or not fds:
        raise CapabilityMissingError(
            f"{program} does not mount on {target}: {complaint or 'it gave no reason'}",
            hint="the directory must be yours, and fusermount3 must be setuid root",
        )
    return fds[0]


def unmount(target: Path, *, lazy: bool = False) -> None:
    """Unmount `target`, whether its server lives or not; with `lazy` even while it is in use.

    Raises BusyError, or CapabilityMissingError when this user may not.
    """
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise CapabilityMissingError("fusermount3 is not installed", hint=_INSTALL)
    flags: Sequence[str] = ("-u", "-q", "-z") if lazy else ("-u",)
    done = process.run([program, *flags, "--", str(target)], check=False)
    if done.status and mounts.mounted_at(target) is not None:
        complaint = done.stderr.decode(errors="replace").strip()
        if "busy" in complaint:
            raise BusyError(f"{target} is in use")
        raise CapabilityMissingError(
            f"{program} does not unmount {target}: {complaint or 'it gave no reason'}",
            hint="only the user who mounted it may, in the mount namespace where it is",
        )
