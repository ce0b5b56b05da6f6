"""Forgetting tracked connections (ctnetlink; linux/netfilter/nfnetlink_conntrack.h)."""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import Final, Self

_NETLINK_NETFILTER: Final = 12
_DELETE: Final = 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
_REQUEST_ACK: Final = 0x1 | 0x4
_MARK, _MARK_MASK = 8, 21  # CTA_*


class Conntrack:
    """The connections of the calling thread's network namespace, for any thread."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER
        )
        self._socket.bind((0, 0))
        self._lock = threading.Lock()

    def forget(self, mark: int) -> None:
        """Forget all connections of IPv4 that carry this mark. Raises OSError."""
        body = struct.pack("=BBH", socket.AF_INET, 0, 0)
        for kind, value in ((_MARK, mark), (_MARK_MASK, 0xFFFFFFFF)):
            body += struct.pack("=HH", 8, kind) + struct.pack("!I", value)
        head = struct.pack("=IHHII", 16 + len(body), _DELETE, _REQUEST_ACK, 0, 0)
        with self._lock:
            self._socket.send(head + body)
            answer = self._socket.recv(4096)
        number = -struct.unpack_from("=i", answer, 16)[0]
        if number:
            raise OSError(number, f"conntrack: {os.strerror(number)}")

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
