"""Carrying out one step on an overlay of the host; what it changes becomes its result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dsec_layers.builder.copying import copy_into
from dsec_layers.builder.placing import make_directories
from dsec_layers.builder.request import Lend, Shown
from dsec_layers.builder.selection import Selected
from dsec_layers.builder.stepcache import WorkFolder, unmount
from dsec_layers.builder.steps import CopyStep, RunStep, WorkdirStep
from dsec_layers.linux import cancelling, container, inroot, mount, mountpoints
from dsec_layers.linux.ocispec import Bind, Command
from dsec_layers.linux.runtime import Runtime
from dsec_layers.linux.users import find_user
from dsec_layers.model.escaping import ESCAPED_PREFIX, OVERLAY_PREFIX

_OVERLAYS_OWN = OVERLAY_PREFIX.decode()
_CONTENT = ESCAPED_PREFIX.decode()


@contextlib.contextmanager
def mounted(folder: WorkFolder, lowers: Sequence[Path]) -> Iterator[Path]:
    """The root of a step, over `lowers` (topmost first) and the stubs of `folder`.

    The overlay never waits for the disk; a result is made durable when it is published.
    """
    stack = [*lowers, folder.stubs]
    _take_over_root(folder.upper, stack[0])
    try:
        mount.mount_overlay(folder.root, stack, upper=folder.upper, work=folder.work, volatile=True)
        yield folder.root
    finally:
        unmount(folder.root)


def run(
    step: RunStep,
    folder: WorkFolder,
    lowers: Sequence[Path],
    lend: Lend,
    on_output: Callable[[bytes], None],
    shown: Shown,
    by: Runtime,
) -> container.Finished:
    """Carry out a RUN and tell how it ended. Raises what `linux.container.run` raises.

    `shown` is what its mounts show, `by` runs it.
    """
    with mount.overlay_view(lowers) if lowers else contextlib.nullcontext(folder.stubs) as view:
        lent = lend(view, folder.spool / "lent")
    binds = [*lent.binds, *_script_bind(step, folder), *shown.mounts]
    mountpoints.make_stubs(folder.stubs, lowers, binds)
    with mounted(folder, lowers) as root:
        _make_folder(root, step.cwd, step.user)  # the layers below may name one that none holds
        command = Command(
            rootfs=root,
            argv=step.argv,
            env={**lent.env, **step.ambient, **step.env, **shown.env},
            cwd=step.cwd,
            user=step.user,
            network="none" if step.network == "none" else "host",
            binds=binds,
        )
        return container.run(
            command, folder.spool, on_output=on_output, cancelled=cancelling.event(), by=by
        )


def copy(
    step: CopyStep,
    folder: WorkFolder,
    lowers: Sequence[Path],
    selected: Sequence[Selected],
    epoch: int | None,
) -> None:
    """Carry out a COPY. Raises what `copy_into` raises."""
    with mounted(folder, lowers) as root:
        copy_into(root, step, selected, spool=folder.spool, epoch=epoch)


def make_workdir(step: WorkdirStep, folder: WorkFolder, lowers: Sequence[Path]) -> None:
    """Carry out a WORKDIR. Raises InvalidInputError or OSError."""
    with mounted(folder, lowers) as root:
        _make_folder(root, step.path, step.user)


def _make_folder(root: Path, path: str, user: str) -> None:
    """See to it that the folder exists; the user of the step owns what is made."""
    if not inroot.locate(root, path).is_dir():
        owner = find_user(root, user)
        make_directories(root, path, (owner.uid, owner.gid))


def _script_bind(step: RunStep, folder: WorkFolder) -> Iterator[Bind]:
    if step.script is not None:
        place = folder.spool / "script"
        place.write_bytes(step.script.content.encode())
        place.chmod(0o755)
        yield Bind(place, step.script.path)


def _take_over_root(upper: Path, model: Path) -> None:
    """An upper's root hides those below it, so it starts with the attributes of the topmost."""
    status = model.stat()
    os.chown(upper, status.st_uid, status.st_gid)
    upper.chmod(status.st_mode & 0o7777)
    for name in os.listxattr(model):
        if name.startswith(_CONTENT) or not name.startswith(_OVERLAYS_OWN):
            os.setxattr(upper, name, os.getxattr(model, name))
    os.utime(upper, ns=(status.st_atime_ns, status.st_mtime_ns))
