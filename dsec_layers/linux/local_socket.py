"""Unix sockets by folder and name, also where the path is longer than the kernel's 107 bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path


def connect(folder: Path, name: str) -> socket.socket:
    """A connected stream socket. Raises OSError when nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder, name) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def listen(folder: Path, name: str) -> socket.socket:
    """A listening stream socket for its owner only; replaces what a dead process left."""
    with contextlib.suppress(FileNotFoundError):
        (folder / name).unlink()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder, name) as address:
            server.bind(address)
        (folder / name).chmod(0o600)
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def peer_uid(connection: socket.socket) -> int:
    """The user on the other side."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")
    )
    uid: int = struct.unpack("iII", credentials)[1]
    return uid


@contextlib.contextmanager
def _short(folder: Path, name: str) -> Iterator[str]:
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
