"""Mount points that leave no trace in a layer.

A container needs places to mount /proc, /dev, the resolver's file and what the host lends. They
come from a folder of empty files and folders that lies below all layers in the overlay, so they
are never written to its upper. Where that cannot be, they are made for the run and removed again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import inroot, mount
from dsec_layers.linux.ocispec import Mount

RESOLVER = "/etc/resolv.conf"
HOSTS = "/etc/hosts"
_FOLDERS = ("/proc", "/sys", "/dev")
_FILES = (RESOLVER, HOSTS)


def make_stubs(stubs: Path, lowers: Sequence[Path], binds: Sequence[Mount] = ()) -> None:
    """Fill the folder `stubs` with the mount points that a container on `lowers` needs.

    The caller appends it to `lowers` (topmost first) when mounting the container's root. Links in
    `lowers` are followed: the mount point of a linked resolv.conf lies where the link leads. The
    times are 0, since a folder that a command writes to is copied up with them. Raises OSError.
    """
    with mount.overlay_view(lowers) if lowers else contextlib.nullcontext(stubs) as view:
        for target, is_folder in _wanted(binds):
            _make(stubs, inroot.resolve(view, target), is_folder=is_folder)
    for folder, _, files in os.walk(stubs):
        for path in (*(Path(folder, name) for name in files), Path(folder)):
            os.utime(path, ns=(0, 0))


@contextlib.contextmanager
def present(root: Path, binds: Sequence[Mount]) -> Iterator[None]:
    """See to it that every mount point exists below `root` while the context lasts.

    What has to be made is removed afterwards and its parent's times are put back. Raises
    InvalidInputError where it cannot be made.
    """
    with contextlib.ExitStack() as undo:
        for target, is_folder in _wanted(binds):
            resolved = inroot.resolve(root, target)
            if not root.joinpath(resolved[1:]).exists():
                try:
                    undo.callback(_remove, _make(root, resolved, is_folder=is_folder))
                except OSError as error:
                    raise InvalidInputError(
                        f"the root file system has no {target} to mount on: {error}"
                    ) from error
        yield


def _wanted(binds: Iterable[Mount]) -> Iterator[tuple[str, bool]]:
    """Each mount point in the root file system and whether it is a folder; /dev is a mount."""
    yield from ((target, True) for target in _FOLDERS)
    yield from ((target, False) for target in _FILES)
    for bind in binds:
        if not bind.target.startswith("/dev/"):
            yield bind.target, bind.is_folder


def _make(root: Path, target: str, *, is_folder: bool) -> list[tuple[Path, os.stat_result]]:
    """Make `target` and its parents; returns what was made and its parent's status before."""
    made = []
    path = root
    parts = target.strip("/").split("/")
    for depth, part in enumerate(parts, start=1):
        before, path = path.stat(), path / part
        if path.exists():
            continue
        made.append((path, before))
        if is_folder or depth < len(parts):
            path.mkdir()
            path.chmod(0o755)
        else:
            path.touch()
            path.chmod(0o644)
    return made


def _remove(made: Sequence[tuple[Path, os.stat_result]]) -> None:
    for path, before in reversed(made):
        # The command may have put something there, or have taken it away: then it is the command's.
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
            os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
