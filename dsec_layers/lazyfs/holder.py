"""Keeps the FUSE connection open in a tiny process, so that daemons may die under live mounts.

It opens /dev/fuse once and lends the descriptor (SCM_RIGHTS) to every daemon that asks, together
with a nonce that names this connection in the mount table. It is run as a bare file (`python -I -S
holder.py RUN --ready-fd N`), imports next to nothing, and does nothing else: the less it does, the
longer it lives.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import sys
from pathlib import Path

_SOCKET = "holder.sock"
_NONCE_BYTES = 16


def runs(run: Path) -> bool:
    """Whether the folder `run` has a holder."""
    return _ask(run, b"hello") is not None


def borrow(run: Path) -> tuple[str, int] | None:
    """The holder's nonce and a close-on-exec descriptor of its connection; None without one."""
    answer = _ask(run, b"lend")
    return (answer[0], answer[1][0]) if answer and answer[1] else None


def end(run: Path) -> bool:
    """Have the holder of `run` end; False when there is none."""
    return _ask(run, b"end") is not None


def _ask(run: Path, word: bytes) -> tuple[str, list[int]] | None:
    from dsec_layers.linux import (
        local_socket,  # not at the top: the holder does without the package
    )

    try:
        with local_socket.connect(run, _SOCKET) as connection:
            connection.sendall(word)
            nonce, fds, _, _ = socket.recv_fds(
                connection, 2 * _NONCE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
    except OSError:
        return None
    return (nonce.decode(), list(fds)) if nonce else None


def _serve(server: socket.socket, fuse: int, nonce: bytes) -> None:
    word = b""
    while word != b"end":
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            word = connection.recv(16)
            lent = (
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fuse]))]
                if word == b"lend"
                else []
            )
            connection.sendmsg([nonce], lent)


def _main(run: str, ready: int) -> None:
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
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
            score.write("-900")
        os.write(ready, b"ready\n")
        os.close(ready)
        _serve(server, fuse, os.urandom(_NONCE_BYTES).hex().encode())


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[3]))
