"""The lazy file system daemon of one home: blobfs, the chunk cache, the control socket.

It may be killed at any moment. The holder keeps the FUSE connection, so reads under live mounts
wait, and has a successor started. That takes the connection over, has every unanswered request sent
again, and serves the layers that its predecessor has recorded.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dsec_layers.errors import BusyError, DaemonError, DsecError
from dsec_layers.lazyfs import holder, settings
from dsec_layers.lazyfs.lanes import OpenStore
from dsec_layers.lazyfs.logs import log_to
from dsec_layers.lazyfs.paths import Paths
from dsec_layers.lazyfs.service import Options, Service
from dsec_layers.linux import detached, syscalls

_DYING_S = 1.0
_PID_DIGITS = 20
_log = logging.getLogger(__name__)


def main(
    open_store: OpenStore,
    argv: Sequence[str] | None = None,
    options: Options | None = None,
    *,
    beside: Callable[[Path], None] | None = None,
) -> None:
    """The daemon's command line.

    `--ready-fd` and `--after-fd` are for `client.ensure`; without them it is in the foreground.

    `beside` runs in a thread of its own with the home, as long as the daemon does. The environment
    tunes it too, see settings.py.
    """
    parser = argparse.ArgumentParser(description="the lazy file system daemon of one home")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--after-fd", type=int, help="a pipe whose end says: the holder runs")
    parser.add_argument("--stand-by", action="store_true", help="wait for another daemon's end")
    settings.add_flags(parser)
    arguments = parser.parse_args(argv)
    ready = None
    if arguments.ready_fd is not None:
        detached.leave_parent()
        ready = partial(detached.say, arguments.ready_fd)
    try:
        options = settings.tuned(options or Options(), os.environ, arguments)
        if beside is not None:
            threading.Thread(target=beside, args=(arguments.home,), daemon=True).start()
        if arguments.after_fd is not None:
            detached.wait_for_end(arguments.after_fd)
        serve(
            arguments.home,
            open_store,
            options,
            ready=ready and partial(ready, detached.READY),
            stand_by=arguments.stand_by,
        )
    except DsecError as error:
        if ready is None:
            raise SystemExit(f"error: {error}") from error
        ready(str(error).encode())
        raise SystemExit(error.exit_code) from error


def serve(
    home: Path,
    open_store: OpenStore,
    options: Options | None = None,
    *,
    ready: Callable[[], object] | None = None,
    stand_by: bool = False,
) -> None:
    """Serve until asked to stop (control socket or SIGTERM), then end the process.

    The holder must run. `ready` is called when clients can connect. Raises BusyError when another
    daemon runs, unless it is to `stand_by` until that ends; DaemonError without a holder,
    CapabilityMissingError or OSError when FUSE cannot be mounted.
    """
    paths = Paths(home.absolute())
    os.umask(0o077)
    syscalls.one_heap()
    paths.create()
    _lock(paths.run / "daemon.lock", stand_by=stand_by)
    options = options or Options()
    log_to(paths.log, options.log_format)
    lent = holder.borrow(paths.run)  # the line in it is open until the process ends
    if lent is None:
        raise DaemonError("the holder of the FUSE connection does not run")
    service = Service(paths, open_store, options, lent.connection, lent.fd)
    _on_sigterm(service.stop.set)
    service.start()
    if ready is not None:
        ready()
    service.stop.wait()
    service.halt()
    _log.info("the daemon stops")
    logging.shutdown()
    os._exit(0)  # without waiting for threads: what they hold unanswered is sent to a successor


def _on_sigterm(stop: Callable[[], None]) -> None:
    """Call `stop` from a thread of its own.

    The kernel may give the signal to any thread, and one that is not the main thread does not wake
    that up, which alone runs Python's handlers. A byte is written whichever it is.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        os.read(reader, 1)
        stop()

    threading.Thread(target=wait, name="sigterm", daemon=True).start()


def _lock(path: Path, *, stand_by: bool) -> None:
    """Take the lock for as long as the process lives; who has just been killed may end first."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if stand_by:
        fcntl.flock(fd, fcntl.LOCK_EX)
    elif not _locked(fd):
        owner = os.pread(fd, _PID_DIGITS, 0).strip()
        ended = owner.isdigit() and detached.wait_for_exit(int(owner), _DYING_S)
        if not (ended and _locked(fd)):
            os.close(fd)
            raise BusyError(f"another daemon runs ({path} is locked)")
    os.pwrite(fd, b"%-*d" % (_PID_DIGITS, os.getpid()), 0)  # in place: the disk may be full


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
