"""Keeps the FUSE connection open in a tiny process, so that daemons may die under live mounts.

It opens /dev/fuse once and lends the descriptor (SCM_RIGHTS) to every daemon that asks, together
with a nonce that names this connection in the mount table. The daemon keeps the line to it open;
when that breaks the daemon has died, and the holder starts the program that it was given, to see to
a successor. When none lasts for `DSEC_ABANDON_S` seconds the holder ends, and the connection with
it: what waits gets an error, for whoever waits without end, an unmount or a sync(2) of the machine
among them, is worse off than with one.

It is run as a bare file (`python -I -S holder.py RUN SUCCESSOR... --ready-fd N`), imports next to
nothing, and does nothing else: the less it does, the longer it lives.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

_SOCKET = "holder.sock"
_NONCE_BYTES = 16
_SHORT_LIFE_S = 10.0
_LASTED_S = 1.0  # whoever lived for so long has served
_FIRST_PAUSE_S = 0.25
_END_TIMEOUT_S = 5.0
_MOST_PAUSE_S = 5.0  # somebody may wait in the kernel with a lock in his hands
_PATIENCE_S = 300.0
PATIENCE = "DSEC_ABANDON_S"


class Lent(NamedTuple):
    """A FUSE connection: its nonce, and what `borrow` has got of it.

    `fd` is close-on-exec. The borrower lives, for the holder, as long as `line` is open.
    """

    connection: str
    fd: int
    line: socket.socket


def connection(run: Path) -> str | None:
    """The nonce of the connection that the holder of the folder `run` holds; None without one."""
    return _ask(run, b"hello")


def borrow(run: Path) -> Lent | None:
    """What a daemon needs of the holder; None without one."""
    line = _call(run)
    if line is None:
        return None
    nonce, fds = _say(line, b"lend")
    if not fds:
        line.close()
        return None
    return Lent(nonce, fds[0], line)


def end(run: Path) -> bool:
    """Have the holder of `run` end, and wait until it is gone; False when there is none."""
    line = _call(run)
    if line is None:
        return False
    with line, contextlib.suppress(OSError):
        line.settimeout(_END_TIMEOUT_S)
        line.sendall(b"end")
        while line.recv(64):  # its own end breaks the line
            pass
    return True


def _ask(run: Path, word: bytes) -> str | None:
    line = _call(run)
    if line is None:
        return None
    with line:
        return _say(line, word)[0] or None


def _call(run: Path) -> socket.socket | None:
    from dsec_layers.linux import (
        local_socket,  # not at the top: the holder does without the package
    )

    try:
        return local_socket.connect(run, _SOCKET)
    except OSError:
        return None


def _say(line: socket.socket, word: bytes) -> tuple[str, list[int]]:
    """The nonce, empty when the holder ends in between, and the descriptors that came with it."""
    try:
        line.sendall(word)
        nonce, fds, _, _ = socket.recv_fds(line, 2 * _NONCE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return "", []
    return nonce.decode(), list(fds)


class _Daemon:
    """The daemon that has borrowed last: when to start its successor, and when to give up."""

    def __init__(self, successor: list[str], patience_s: float) -> None:
        self.line: socket.socket | None = None
        self._successor = successor
        self._patience_s = patience_s
        self._lent_at = 0.0
        self._pause = 0.0
        self._due: float | None = None
        self._missed_since: float | None = None  # by a daemon that lasted

    def came(self, line: socket.socket | None) -> None:
        self.line, self._lent_at, self._due = line, time.monotonic(), None

    def died(self) -> None:
        now = time.monotonic()
        lived_s = now - self._lent_at
        short = lived_s < _SHORT_LIFE_S
        self._pause = min(2 * self._pause + _FIRST_PAUSE_S, _MOST_PAUSE_S) if short else 0.0
        if lived_s >= _LASTED_S or self._missed_since is None:
            self._missed_since = now
        self.line, self._due = None, now + self._pause

    def patience_s(self) -> float | None:
        """How long there is nothing to do."""
        give_up = None if self._missed_since is None else self._missed_since + self._patience_s
        moments = [each for each in (self._due, give_up) if each is not None]
        if self.line is not None or not moments:
            return None
        return max(0.0, min(moments) - time.monotonic())

    def succeeded_or_missed(self) -> bool:
        """Start a successor when it is time; False when none has come for too long."""
        now = time.monotonic()
        if self.line is not None or self._missed_since is None:
            return True
        if now >= self._missed_since + self._patience_s:
            return False
        if self._due is not None and now >= self._due:
            _start(self._successor)
            self._due = None
        return True


def _serve(server: socket.socket, fuse: int, daemon: _Daemon) -> None:
    nonce = os.urandom(_NONCE_BYTES).hex().encode()
    mine = os.stat(_SOCKET).st_ino  # noqa: PTH116
    word = b""
    while word != b"end":
        line = daemon.line
        awaited = [server, line] if line else [server]
        ready, _, _ = select.select(awaited, [], [], daemon.patience_s())
        if line in ready:
            if not _is_there(mine):  # another has taken this place; nobody can borrow here
                return
            daemon.died()
        if server in ready:
            word, caller = _answer(server, fuse, nonce)
            if word == b"lend":
                daemon.came(caller)
            del caller  # who only asked has his answer, and no more of him is kept
        elif not daemon.succeeded_or_missed():
            os.write(2, b"no daemon for too long: the holder lets go of the FUSE connection\n")
            break
    os._exit(0)  # the caller's line breaks when nothing is left of this process


def _answer(server: socket.socket, fuse: int, nonce: bytes) -> tuple[bytes, socket.socket | None]:
    """Serve one caller: what he wanted, and the line to him."""
    caller, word = None, b""
    with contextlib.suppress(OSError):
        caller, _ = server.accept()
        caller.settimeout(5)
        word = caller.recv(16)
        lent = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fuse]))]
        caller.sendmsg([nonce], lent if word == b"lend" else [])
    return word, caller


def _is_there(inode: int) -> bool:
    try:
        return os.stat(_SOCKET).st_ino == inode  # noqa: PTH116
    except OSError:
        return False


def _start(argv: list[str]) -> None:
    with contextlib.suppress(OSError):
        os.posix_spawn(argv[0], argv, os.environ, setsigdef=[signal.SIGCHLD])


def _patience_s() -> float:
    try:
        patience_s = float(os.environ.get(PATIENCE) or _PATIENCE_S)
    except ValueError:
        patience_s = _PATIENCE_S
    return patience_s if patience_s > 0 else float("inf")


def _main(run: str, successor: list[str], ready: int) -> None:
    os.chdir(run)
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        os.unlink(_SOCKET)  # noqa: PTH108 - the holder works without pathlib's conveniences
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(_SOCKET)
        os.chmod(_SOCKET, 0o600)  # noqa: PTH101
        server.listen()
        if os.fork():
            os._exit(0)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for successors
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
            score.write("-900")
        os.write(ready, b"ready\n")
        os.close(ready)
        _serve(server, fuse, _Daemon(successor, _patience_s()))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:-2], int(sys.argv[-1]))
