"""The EROFS mounts of layers: one for each layer and node, so that users share the page cache.

    DSEC_HOME/run/layers/<layer hex>/      the mount point
    DSEC_HOME/run/layers/<layer hex>.bdi   a link: the boot, the kernel's names of the mount

Who uses them is the journal's matter; everything here happens with the journal's lock held.

An unmounted file system lives on while a file of it is open, or a copy of the mount is left in a
container. Its device must be served until then. The kernel's list of backing devices tells.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from dsec_layers.errors import DsecError
from dsec_layers.linux import mount, procinfo

READ_AHEAD_KIB = 8192  # hides the latency of a remote store, see _set_read_ahead

_BDI = Path("/sys/class/bdi")
_SUFFIX = ".bdi"
_log = logging.getLogger(__name__)


class LayerMounts:
    """Makes, lists and undoes the mounts below one folder."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "layers"

    def path(self, hex_digest: str) -> Path:
        """The mount point of a layer."""
        return self._folder / hex_digest

    def mounted(self) -> set[str]:
        """The layers (hex) that are mounted in this mount namespace."""
        folder = str(self._folder)
        targets = (Path(point.target) for point in mount.mount_points())
        return {target.name for target in targets if str(target.parent) == folder}

    def known(self) -> set[str]:
        """The layers (hex) that have left a trace, mounted or not."""
        with contextlib.suppress(FileNotFoundError):
            return {path.name.removesuffix(_SUFFIX) for path in self._folder.iterdir()}
        return set()

    def mount(self, hex_digest: str, metadata: Path, device: Path) -> None:
        """Mount a layer. Raises CapabilityMissingError, or DsecError when the kernel refuses it."""
        target = self.path(hex_digest)
        target.mkdir(parents=True, exist_ok=True)
        try:
            names = _mount_alone(metadata, target, device)
        except OSError as error:
            raise DsecError(f"the kernel does not mount {metadata}: {error}") from error
        _set_read_ahead(names)
        names |= self._living(hex_digest)
        self._link(hex_digest).unlink(missing_ok=True)
        self._link(hex_digest).symlink_to("/".join([procinfo.boot_id(), *sorted(names)]))

    def unmount(self, hex_digest: str) -> None:
        """Unmount a layer; whoever still has a file of it open keeps it alive."""
        mount.unmount(self.path(hex_digest), lazy=True)

    def lives(self, hex_digest: str) -> bool:
        """Whether a mount of a layer is still there, mounted or held by an open file."""
        return bool(self._living(hex_digest))

    def forget(self, hex_digest: str) -> None:
        """Remove every trace of a layer that is not mounted."""
        self._link(hex_digest).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path(hex_digest).rmdir()

    def _living(self, hex_digest: str) -> set[str]:
        try:
            boot, *names = str(self._link(hex_digest).readlink()).split("/")
        except FileNotFoundError:
            return set()
        return _backing_devices() & set(names) if boot == procinfo.boot_id() else set()

    def _link(self, hex_digest: str) -> Path:
        return self._folder / f"{hex_digest}{_SUFFIX}"


def _mount_alone(metadata: Path, target: Path, device: Path) -> set[str]:
    """Mount, and find out the kernel's name for it: the one that is new.

    When somebody else mounts an EROFS at the same time the name is not certain, so it is tried
    again, a few times. In the end more than one name may be returned.
    """
    names: set[str] = set()
    for last in (False, False, False, True):
        before = _backing_devices()
        mount.mount_erofs(metadata, target, device=device)
        names = _backing_devices() - before
        if len(names) == 1 or last:
            break
        mount.unmount(target, lazy=True)
    return names


def _backing_devices() -> set[str]:
    with contextlib.suppress(OSError):
        names = os.listdir(_BDI)  # noqa: PTH208 - asked twice for each layer, and long with many
        return {name for name in names if name.startswith("erofs")}
    return set()


def _set_read_ahead(names: set[str]) -> None:
    """A slow remote is hidden by reading ahead.

    With 20 ms a request one sequential reader got 276 MB/s with this, and 11 MB/s with the default.
    """
    for name in names:
        try:
            (_BDI / name / "read_ahead_kb").write_text(str(READ_AHEAD_KIB))
        except OSError as error:
            _log.warning("cannot set the read-ahead of %s: %s", name, error)
