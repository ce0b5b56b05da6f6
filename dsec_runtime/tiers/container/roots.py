"""The root file system of a sandbox: an overlay of its own over layers that all share.

The overlay shows the layers and the upper with the ids of the sandbox (idmapped mounts), while the
files on disk keep those of the environment. Layers may hold device nodes; none of them opens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from dsec_layers.linux import syscalls as layer_syscalls
from dsec_runtime.errors import CreationFailedError
from dsec_runtime.linux import overlays, syscalls
from dsec_runtime.linux.closer import Closer
from dsec_runtime.linux.launcher import Launcher
from dsec_runtime.linux.userns import UserNamespaces
from dsec_runtime.resources.identities import Identity
from dsec_runtime.tiers.container.places import Sandbox

# `volatile`: no sandbox outlives its node, so nothing waits for the disk. The rest keeps the upper
# plain files that can be packed.
_OPTIONS: Final = (
    ("redirect_dir", "off"),
    ("metacopy", "off"),
    ("index", "off"),
    ("volatile", None),
)
_FOLDERS: Final = ("dev", "etc", "proc", "sys")
_FILES: Final = ("etc/hosts", "etc/resolv.conf")
_KERNEL_XATTRS: Final = "trusted.overlay."


def make_skeleton(folder: Path) -> None:
    """The lowest layer of all roots, so that no runtime makes a mount point in a sandbox's upper.

    What is made there would be part of each snapshot.
    """
    for name in _FOLDERS:
        (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in _FILES:
        (folder / name).touch(mode=0o644)


def mount_root(
    sandbox: Sandbox,
    layers: Sequence[Path],
    identity: Identity,
    namespaces: UserNamespaces,
    closer: Closer,
    launcher: Launcher,
) -> None:
    """Mount the overlay of `layers`, lowest first, and the sandbox's disk.

    `closer` ends what is needed for that alone, and `launcher` has the place where a kernel before
    6.15 must see it meanwhile. Raises OSError, and CreationFailedError where the kernel would not
    let it be written to, which it does not say by itself.
    """
    _cover(sandbox.disk / "upper", layers[-1])
    with ExitStack() as stack:
        ids = stack.enter_context(namespaces.of(identity.layers))
        lowers = [_shown(stack, closer, layer, ids) for layer in reversed(layers)]
        ids = stack.enter_context(namespaces.of(identity.upper))
        disk = _shown(stack, closer, sandbox.disk, ids)
        options = (("source", f"sandbox:{sandbox.id}"), *_OPTIONS)
        made = overlays.over_mounts(lowers, disk, options, syscalls.MOUNT_ATTR_NODEV, launcher)
        stack.callback(os.close, made)
        if os.fstatvfs(made).f_flag & os.ST_RDONLY:
            raise CreationFailedError("the kernel mounts the root file system read-only")
        sandbox.root.mkdir(mode=0o755, exist_ok=True)
        layer_syscalls.move_mount(made, str(sandbox.root))


def unmount_root(sandbox: Sandbox, closer: Closer) -> None:
    """Undo it; nothing happens when it is not mounted. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        with contextlib.suppress(OSError):
            closer.unmount(sandbox.root)
        sandbox.root.rmdir()


def _shown(stack: ExitStack, closer: Closer, folder: Path, ids: int) -> int:
    """A detached mount of `folder`, shown with the ids of a user namespace."""
    fd = syscalls.open_tree(str(folder))
    stack.callback(closer.take, fd)
    syscalls.idmap(fd, ids)
    return fd


def _cover(upper: Path, model: Path) -> None:
    """The upper's root hides that of the layers, so it takes over what that is."""
    status = model.stat()
    os.chown(upper, status.st_uid, status.st_gid)
    upper.chmod(status.st_mode & 0o7777)
    for name in os.listxattr(model):
        if not name.startswith(_KERNEL_XATTRS):
            os.setxattr(upper, name, os.getxattr(model, name))
    os.utime(upper, ns=(status.st_mtime_ns, status.st_mtime_ns))
