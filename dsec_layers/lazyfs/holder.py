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


def ask(run: Path, word: bytes) -> tuple[str, int | None] | None:
    """Send `hello`, `lend` or `end` to the holder of the folder `run`; None when there is none.

    Returns its nonce and, for `lend`, a close-on-exec descriptor of the FUSE connection.
    """
    from dsec_layers.linux import (
        local_socket,
    )  # not at the top: the holder process does without the package

    try:
        with local_socket.connect(run, _SOCKET) as connection:
            connection.sendall(word)
            connection.shutdown(socket.SHUT_WR)
            nonce, fds, _, _ = socket.recv_fds(
                connection, 2 * _NONCE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
    except OSError:
        return None
    return (nonce.decode(), fds[0] if fds else None) if nonce else None


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
