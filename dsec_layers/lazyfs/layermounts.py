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
from collections.abc import Iterable, Sequence
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

    def mounted(self, layers: Iterable[str]) -> set[str]:
        """Those of `layers` (hex) that are mounted in this mount namespace.

        What is mounted is another device than the folder. The kernel writes the whole table of
        mounts for whoever asks for it, and that is long where there are many.
        """
        found = set()
        with contextlib.suppress(FileNotFoundError):
            device = self._folder.stat().st_dev
            found = {each for each in layers if self._device(each) not in (device, None)}
        return found

    def _device(self, hex_digest: str) -> int | None:
        try:
            return os.stat(f"{self._folder}/{hex_digest}").st_dev  # noqa: PTH116 - of each layer
        except FileNotFoundError:
            return None

    def known(self) -> set[str]:
        """The layers (hex) that have left a trace, mounted or not."""
        with contextlib.suppress(FileNotFoundError):
            return {path.name.removesuffix(_SUFFIX) for path in self._folder.iterdir()}
        return set()

    def mount(self, layers: Sequence[tuple[str, Path, Path]]) -> None:
        """Mount layers, each given by its hex, its metadata and its device.

        Raises CapabilityMissingError, or DsecError when the kernel refuses one; those before it are
        mounted then.
        """
        for hex_digest, _, _ in layers:
            self.path(hex_digest).mkdir(parents=True, exist_ok=True)
        for (hex_digest, _, _), names in zip(layers, self._mount_named(layers), strict=True):
            _set_read_ahead(names)
            self._note(hex_digest, names)

    def _mount_named(self, layers: Sequence[tuple[str, Path, Path]]) -> Sequence[set[str]]:
        """Mount, and find out the kernel's names of the mounts: those that are new, in order.

        When somebody else mounts an EROFS at the same time the names are not certain, so it is
        tried again one by one.
        """
        before = _backing_devices()
        for layer in layers:
            self._mount_one(*layer)
        new = sorted(_backing_devices() - before, key=_age)
        if len(new) == len(layers):
            return [{name} for name in new]
        for hex_digest, _, _ in layers:
            self.unmount(hex_digest)
        return [self._mount_alone(layer) for layer in layers]

    def _mount_alone(self, layer: tuple[str, Path, Path]) -> set[str]:
        """The same for one layer, tried a few times. In the end there may be several names."""
        names: set[str] = set()
        for last in (False, False, False, True):
            before = _backing_devices()
            self._mount_one(*layer)
            names = _backing_devices() - before
            if len(names) == 1 or last:
                break
            self.unmount(layer[0])
        return names

    def _mount_one(self, hex_digest: str, metadata: Path, device: Path) -> None:
        try:
            mount.mount_erofs(metadata, self.path(hex_digest), device=device)
        except OSError as error:
            raise DsecError(f"the kernel does not mount {metadata}: {error}") from error

    def _note(self, hex_digest: str, names: set[str]) -> None:
        """Keep the names; mounts of the layer that still live keep theirs."""
        link = self._link(hex_digest)
        if earlier := _names_in(link):
            names = names | (earlier & _backing_devices())
        link.unlink(missing_ok=True)
        link.symlink_to("/".join([procinfo.boot_id(), *sorted(names)]))

    def unmount(self, hex_digest: str) -> None:
        """Unmount a layer; whoever still has a file of it open keeps it alive."""
        mount.unmount(self.path(hex_digest), lazy=True)

    def living(self, layers: Iterable[str]) -> set[str]:
        """Those of `layers` with a mount that is still there, or is held by an open file."""
        there = _backing_devices()
        return {each for each in layers if _names_in(self._link(each)) & there}

    def forget(self, hex_digest: str) -> None:
        """Remove every trace of a layer that is not mounted."""
        self._link(hex_digest).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path(hex_digest).rmdir()

    def _link(self, hex_digest: str) -> Path:
        return self._folder / f"{hex_digest}{_SUFFIX}"


def _names_in(link: Path) -> set[str]:
    """The names in a link of this boot; none where there is no link."""
    try:
        boot, *names = os.readlink(link).split("/")  # noqa: PTH115 - of each layer
    except FileNotFoundError:
        return set()
    return set(names) if boot == procinfo.boot_id() else set()


def _age(name: str) -> int:
    """The kernel counts: erofs-7 was there before erofs-12."""
    return int(name.rpartition("-")[2])


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
