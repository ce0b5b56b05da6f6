"""Threads in a mount namespace of their own, from which programs are started.

A program that makes containers copies all mounts of the namespace it starts in, and must reach the
container's root by its path as the container's own root user. Here there are few mounts, however
many containers this node has: what is to be run is shown on a stage, an empty file system that
everybody may enter, and taken off it when it runs. What is unmounted on the node is unmounted here
too (slave mounts); what is done here is done here only.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from dsec_layers.linux import mount
from dsec_layers.linux import syscalls as layer_syscalls
from dsec_runtime.errors import UnsupportedError
from dsec_runtime.linux import namespaces, syscalls

T = TypeVar("T")
Launch = Callable[[Callable[[], int]], int]  # does what it is given in the namespace
_MOUNTED: Final = re.compile(r"/run/(blobs|layers|rootfs|sandboxes)(/|$)")  # of a home
_STAGES: Final = ("/srv", "/media", "/mnt", "/opt")


class Stage(NamedTuple):
    """`root` is where it is seen; `launch` shows it and calls what starts a program, once."""

    root: Path
    launch: Launch


class Launcher:
    """At most `threads` calls at a time.

    `hidden` are mount points that must not be seen there. `run` is a folder that must be, but not
    what is mounted below it: that would stay mounted here when it is unmounted on the node.
    """

    def __init__(self, threads: int, run: Path, *, hidden: Sequence[Path] = ()) -> None:
        self._hidden = hidden
        self._run = run
        self._stage = _stage(run)
        self._namespace: int | None = None
        self._leaving: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._entered = threading.local()
        self._pool = ThreadPoolExecutor(threads, "launch")

    def call(self, what: Callable[[], T]) -> T:
        """Do `what` in the namespace, wait for its end and return what it returns."""
        return self._submit(what).result()

    def _submit(self, what: Callable[[], T]) -> Future[T]:
        return self._pool.submit(self._inside, what)

    def _inside(self, what: Callable[[], T]) -> T:
        """A thread that could not enter fails this call only, and tries again at the next."""
        if not getattr(self._entered, "yes", False):
            self._enter()
            self._entered.yes = True
        return what()

    @contextlib.contextmanager
    def staged(self, root: Path, name: str) -> Iterator[Stage]:
        """A stage on which the mount at `root` is seen from `launch` to the end of a block.

        Its end is not waited for, see `wait_unstaged`.
        """
        shown = self._stage / name
        copy = syscalls.open_tree(str(root))

        def launched(start: Callable[[], int]) -> int:
            _show(copy, shown)
            return start()

        try:
            yield Stage(shown, lambda start: self.call(lambda: launched(start)))
        finally:
            os.close(copy)
            self._leaving[name] = self._submit(lambda: _hide(shown))

    def attached(self, mounts: Sequence[int], what: Callable[[Sequence[str]], T]) -> T:
        """Do `what` there with the paths at which these detached mounts are attached meanwhile."""

        def shown() -> T:
            places = [self._stage / f"fd-{fd}" for fd in mounts]
            with contextlib.ExitStack() as hidden:
                for fd, place in zip(mounts, places, strict=True):
                    hidden.callback(_hide, place)
                    _show(fd, place)
                return what(list(map(str, places)))

        return self.call(shown)

    def wait_unstaged(self, name: str) -> None:
        """Wait until nothing of what was staged under this name is mounted here."""
        if (leaving := self._leaving.pop(name, None)) is not None:
            leaving.result()

    def close(self) -> None:
        """End the threads; the namespace goes with the last of them and what it started."""
        self._pool.shutdown()
        with self._lock:
            if self._namespace is not None:
                os.close(self._namespace)
                self._namespace = None

    def _enter(self) -> None:
        with self._lock:
            if self._namespace is not None:
                namespaces.unshare(syscalls.CLONE_FS)
                namespaces.setns(self._namespace, syscalls.CLONE_NEWNS)
                return
            namespaces.unshare(syscalls.CLONE_NEWNS)
            layer_syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
            left_out = [
                Path(point.target) for point in mount.mount_points() if self._is_spare(point)
            ]
            for path in self._hidden:
                mount.unmount(path, lazy=True)
            for path in reversed(left_out):
                with contextlib.suppress(OSError):  # unmounted on the node meanwhile
                    mount.unmount(path, lazy=True)
            mount.mount_tmpfs(self._stage, options="mode=0711")
            thread = f"/proc/self/task/{threading.get_native_id()}/ns/mnt"
            self._namespace = os.open(thread, os.O_RDONLY | os.O_CLOEXEC)

    def _is_spare(self, point: mount.MountPoint) -> bool:
        """Whether nothing here needs a mount: it lies below our folder, or is of another home.

        What it shows would only be kept alive.
        """
        path = Path(point.target)
        if path == self._run or path in self._run.parents:
            return False
        foreign = point.source.startswith("dsec:") or _MOUNTED.search(point.target) is not None
        return foreign or self._run in path.parents


def keep_private(folder: Path) -> None:
    """Let what is mounted below `folder` be seen in this mount namespace alone.

    It becomes a mount point of itself, if it is not one. Another namespace that got a copy would
    keep it mounted when it is unmounted here. Raises OSError.
    """
    if mount.mounted_at(folder) is None:
        layer_syscalls.mount(str(folder), str(folder), None, syscalls.MS_BIND)
    layer_syscalls.mount("none", str(folder), None, syscalls.MS_PRIVATE)


def _stage(run: Path) -> Path:
    for name in _STAGES:
        path = Path(name)
        if path.is_dir() and path not in run.parents:
            return path
    raise UnsupportedError(
        f"none of {', '.join(_STAGES)} is free to be mounted on in a namespace of the runtime's",
        hint="make an empty folder /srv",
    )


def _show(copy: int, place: Path) -> None:
    place.mkdir()
    layer_syscalls.move_mount(copy, str(place))


def _hide(place: Path) -> None:
    with contextlib.suppress(OSError):
        mount.unmount(place, lazy=True)
    with contextlib.suppress(OSError):
        place.rmdir()
