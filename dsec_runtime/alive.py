"""How a connection finds out that nobody is at its other end any more.

Streams carry something now and then also when there is nothing to say, so silence is an end; and
the kernel asks across TCP, which tells a host that is gone.
"""

from __future__ import annotations

import socket
from typing import Final

KEEPALIVE_S: Final = 20.0  # after which an edge that has nothing to say on a stream says so
SILENCE_S: Final = 120.0  # after which a client takes an edge that streams for gone
_IDLE_S, _EVERY_S, _PROBES = 15, 5, 4
_USER_TIMEOUT_MS: Final = 1000 * (_IDLE_S + _EVERY_S * _PROBES)


def watch_peer(connection: socket.socket) -> None:
    """Break a TCP connection, or those accepted of a listener, when its peer is gone for 35 s."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_S),
        (socket.TCP_KEEPINTVL, _EVERY_S),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
