"""The writable disk of a sandbox: a sparse ext4 image of its own, which is its quota.

    TEMPLATES/<bytes>.img           an empty formatted image of each size that was asked for
    <sandbox>/disk.img              a copy, on a loop device that goes with the mount
    <sandbox>/disk/{upper,work}     what an overlay needs, on it

Project quotas would do without the image, but few kernels have them. Images have no journal: a
sandbox does not outlive its node. Some disks are made ahead. They have no name and are mounted
nowhere, so nothing is left of them when this process is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.linux import syscalls as layer_syscalls
from dsec_runtime.errors import CreationFailedError
from dsec_runtime.linux import loop
from dsec_runtime.linux.closer import Closer
from dsec_runtime.resources import diskimages
from dsec_runtime.resources.diskimages import Templates

_EXT4_SHUTDOWN: Final = 0x8004587D
_WITHOUT_LOG: Final = (2).to_bytes(4, sys.byteorder)
_MUCH_BYTES: Final = 32 << 20
_LOOP_MAJOR: Final = 7
_log = logging.getLogger(__name__)


class _Spare(msgspec.Struct):
    """A disk that nobody has: a nameless image, and its mount, which is attached nowhere."""

    image: int
    mounted: int

    def close(self) -> None:
        os.close(self.mounted)
        os.close(self.image)


class Disks:
    """Makes and removes disks in folders below `sandboxes`. Safe for many threads.

    At most `spares` of the size that was asked for last are made ahead.
    """

    def __init__(self, templates: Path, sandboxes: Path, closer: Closer, *, spares: int) -> None:
        self._closer = closer
        self._sandboxes = sandboxes  # by one mount: else a nameless file gets no name there
        self._templates = Templates(templates)
        self._wanted = spares
        self._spares: deque[_Spare] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._missed = threading.Event()
        self._ended = False
        self._maker = threading.Thread(target=self._make_spares, name="disks", daemon=True)
        self._maker.start()

    def foresee(self, size_bytes: int) -> None:
        """Make disks of this size ahead."""
        with self._lock:
            self._size = self._size or size_bytes
        self._missed.set()

    def make(self, sandbox: Path, size_bytes: int) -> Path:
        """Give a sandbox an empty disk; where it is mounted. Raises CreationFailedError."""
        spare = self._take(size_bytes)
        try:
            if spare is None:
                with self._explained():
                    spare = self._new(self._templates.open(size_bytes), empty=True)
            with self._explained():
                return _settle(spare, sandbox)
        finally:
            if spare is not None:
                spare.close()

    def copy(self, source: Path, sandbox: Path) -> Path:
        """Give a sandbox a copy of the disk of another, as it is now; as `make`."""
        with self._explained(), diskimages.still(source / "disk"):
            source_fd = os.open(source / "disk.img", os.O_RDONLY | os.O_CLOEXEC)
            spare = self._new(source_fd, empty=False)
        try:
            with self._explained():
                return _settle(spare, sandbox)
        finally:
            spare.close()

    def remove(self, sandbox: Path) -> None:
        """Undo `make`, also of half of it; the loop device goes a moment later. Raises OSError."""
        place = sandbox / "disk"
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(OSError):  # where it is not mounted
                self._closer.unmount(place, lambda fd: _write_no_more(fd, place.parent))
            place.rmdir()
        (sandbox / "disk.img").unlink(missing_ok=True)

    def close(self) -> None:
        """Let the spares go."""
        with self._lock:
            self._ended = True
        self._missed.set()
        self._maker.join()
        self._drop_spares()

    def _take(self, size_bytes: int) -> _Spare | None:
        with self._lock:
            if size_bytes != self._size:
                self._drop_spares()
                self._size = size_bytes
            found = self._spares.popleft() if self._spares else None
        self._missed.set()
        return found

    def _drop_spares(self) -> None:
        while self._spares:
            self._spares.popleft().close()

    def _make_spares(self) -> None:
        while True:
            self._missed.wait()
            self._missed.clear()
            try:
                while self._make_spare():
                    pass
            except (OSError, CreationFailedError) as error:  # it will be told to who asks for it
                _log.warning("no disk was made ahead: %s", error)
            if self._ended:
                return

    def _make_spare(self) -> bool:
        with self._lock:
            size = self._size
            if self._ended or not size or len(self._spares) >= self._wanted:
                return False
        with self._explained():
            spare = self._new(self._templates.open(size), empty=True)
            diskimages.warm(spare.mounted)
        with self._lock:
            if size == self._size and not self._ended:
                self._spares.append(spare)
                return True
        spare.close()
        return True

    def _new(self, source: int, *, empty: bool) -> _Spare:
        """A disk with the content of the open image `source`, which is closed."""
        image = -1
        try:
            image = os.open(self._sandboxes, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if empty:
                os.truncate(image, os.fstat(source).st_size)
            else:
                diskimages.copy_data(source, image)
            with loop.attached(image) as device:
                if empty:
                    diskimages.fill(device, source)
                return _Spare(image, diskimages.mounted(device))
        except BaseException:
            if image >= 0:
                os.close(image)
            raise
        finally:
            os.close(source)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CreationFailedError(
                f"the disk of the sandbox cannot be made: {error}",
                hint="this needs mkfs.ext4, loop devices and room on the disk of the home",
            ) from error


def _settle(spare: _Spare, sandbox: Path) -> Path:
    """Give a disk its name and its place; `remove` undoes any part of it."""
    folder = os.open(sandbox, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Without a descriptor Python's link would name the link itself.
        os.link(f"/proc/self/fd/{spare.image}", "disk.img", dst_dir_fd=folder)
    finally:
        os.close(folder)
    place = sandbox / "disk"
    place.mkdir(mode=0o700)
    layer_syscalls.move_mount(spare.mounted, str(place))
    return place


def _write_no_more(fd: int, sandbox: Path) -> None:
    """Let nothing of it go to the node's disk any more, if it is one of our disks.

    A full one is gone in a tenth of the time; as the kernel logs it, others just end. Nothing
    but a loop device of its own is touched.
    """
    device, space = os.fstat(fd).st_dev, os.fstatvfs(fd)
    ours = os.major(device) == _LOOP_MAJOR and device != sandbox.parent.stat().st_dev
    if ours and (space.f_blocks - space.f_bfree) * space.f_frsize > _MUCH_BYTES:
        with contextlib.suppress(OSError):  # it is written then
            fcntl.ioctl(fd, _EXT4_SHUTDOWN, _WITHOUT_LOG)
