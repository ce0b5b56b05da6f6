"""Network namespaces: made, kept alive by a mount, and entered by threads of their own.

A namespace lives as long as something holds it; bind-mounted on a file it needs no process
(namespaces(7)). Only a thread that is made for it enters one, so that no other thread of this
process ever finds itself elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from dsec_layers.linux import mount, syscalls

Result = TypeVar("Result")

CLONE_NEWNET: Final = 0x40000000
_MS_BIND: Final = 4096
_OWN: Final = "/proc/thread-self/ns/net"
_AT_ONCE: Final = 8
_WAIT_S: Final = 0.25

_libc = ctypes.CDLL(None, use_errno=True)


def setns(fd: int, kind: int = CLONE_NEWNET) -> None:
    """setns(2): the calling thread enters the namespace. Raises OSError."""
    if _libc.setns(fd, kind) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


def unshare(kind: int = CLONE_NEWNET) -> None:
    """unshare(2): the calling thread gets a new namespace of its own. Raises OSError."""
    if _libc.unshare(kind) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


def enter(path: Path | None) -> None:
    """Bring the calling thread into the network namespace at `path`; None is where it is."""
    if path is None:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(fd)
    finally:
        os.close(fd)


def in_new_network(path: Path, prepare: Callable[[], Result]) -> Result:
    """Make a network namespace, run `prepare` in it, and keep it at the new file `path`.

    On an error nothing is left. Raises OSError (also FileExistsError) and what `prepare` raises.
    """

    def work() -> Result:
        unshare()
        result = prepare()
        path.touch(mode=0o600, exist_ok=False)
        try:
            syscalls.mount(_OWN, str(path), None, _MS_BIND)
        except OSError:
            path.unlink()
            raise
        return result

    return in_thread(work)


def forget(path: Path) -> None:
    """Let the namespace kept at `path` end with its last process; no error when there is none."""
    while True:
        try:
            mount.unmount(path, lazy=True)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            break
    path.unlink(missing_ok=True)


def is_kept(path: Path) -> bool:
    """Whether a namespace is kept at `path`: its file is one of the kernel's own."""
    try:
        return path.stat().st_dev == Path(_OWN).stat().st_dev
    except OSError:
        return False


def in_thread(work: Callable[[], Result]) -> Result:
    """The result of `work`, done by a thread that ends with it."""
    future: Future[Result] = Future()

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # goes on to whoever asked
            future.set_exception(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join()
    return future.result()


class Inside:
    """A thread that lives in a network namespace and works for others there, one at a time.

    Without a path it is the namespace of the process.
    """

    def __init__(self, path: Path | None, name: str) -> None:
        """Raises OSError where the namespace cannot be entered."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        try:
            self.run(lambda: enter(path))
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, done inside; raises what it raises."""
        return self._pool.submit(work).result()

    def close(self) -> None:
        """End the thread when it has done what it was asked."""
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Endings:
    """Lets network namespaces that nobody needs end several at a time; safe for many threads.

    The kernel looks through all connections of the machine for those of a namespace that ends, and
    waits for all processors several times, once for all that end together: of eight, each costs a
    third of what one does. Held by descriptors, they end with this process too.
    """

    def __init__(self) -> None:
        self._given: queue.Queue[int | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="endings", daemon=True)
        self._thread.start()

    def forget(self, path: Path) -> None:
        """As the function `forget`: the file goes at once, the namespace within seconds."""
        held = _held(path)
        try:
            forget(path)
        finally:
            if held is not None:
                self._given.put(held)

    def close(self) -> None:
        """Let go of all, and take no more."""
        self._given.put(None)
        self._thread.join()

    def _work(self) -> None:
        held: list[int] = []
        while True:
            try:
                given = self._given.get(timeout=_WAIT_S if held else None)
            except queue.Empty:
                _close(held)
                continue
            if given is None:
                break
            held.append(given)
            if len(held) == _AT_ONCE:
                _close(held)
        _close(held)


def _held(path: Path) -> int | None:
    """None where there is nothing, or no descriptor left: then it ends alone."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _close(held: list[int]) -> None:
    for fd in held:
        os.close(fd)
    held.clear()
