"""Unix sockets whose path may be longer than an address holds."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_BACKLOG = 16


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A stream socket that listens at `path`, which is new, for the length of a block.

    Whoever inherits it may listen on; the path stays. Raises OSError.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(f"/proc/self/fd/{folder}/{path.name}")
            path.chmod(0o600)
            server.listen(_BACKLOG)
            yield server
    finally:
        os.close(folder)
