"""Connections to a store that can be ended whatever threads wait for on them.

A server that takes a request and never answers holds the thread that asked for as long as the time
limit of a read, and that has to be long.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from typing import Any, Final

import urllib3

_GRACE_S: Final = 2.0


class Connections:
    """The connections of one client. Safe for many threads; `stop` also for handlers of signals."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakValueDictionary[int, socket.socket] = (
            weakref.WeakValueDictionary()
        )
        self._stopped = False

    def stop(self) -> None:
        """End all that are open. Later ones, of who cleans up behind itself, last a moment each."""
        self._stopped = True
        for reference in self._sockets.valuerefs():
            if (each := reference()) is not None:
                _end(each)

    def among(self, pool: type[urllib3.HTTPConnectionPool]) -> type[urllib3.HTTPConnectionPool]:
        """The same kind of pool, whose connections are among these."""
        opened = self._opened
        plain: Any = pool.ConnectionCls

        class Connection(plain):  # type: ignore[misc]  # http or https, ours or that of a library
            def connect(self) -> None:
                super().connect()
                opened(self.sock)

        return type(pool.__name__, (pool,), {"ConnectionCls": Connection})

    def _opened(self, opened: socket.socket) -> None:
        self._sockets[id(opened)] = opened
        if self._stopped:
            timer = threading.Timer(_GRACE_S, _end, (opened,))
            timer.daemon = True
            timer.start()


def _end(opened: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
        # That of TLS would let others read on without it.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
