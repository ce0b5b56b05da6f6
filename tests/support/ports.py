"""Ports of the loopback interface, for servers that must be told theirs."""

from __future__ import annotations

import contextlib
import random
import socket

_OWN = range(10_000, 30_000)
_choose = random.SystemRandom()  # workers of a run may share the state of the usual one


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on.

    They lie below those that the kernel gives to whoever names none, so nobody gets one by chance
    before the server has it.
    """
    with contextlib.ExitStack() as stack:
        return [_bound(stack.enter_context(socket.socket())) for _ in range(count)]


def free_port() -> int:
    """One of them."""
    (port,) = free_ports(1)
    return port


def _bound(taken: socket.socket) -> int:
    while True:
        port = _choose.choice(_OWN)
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port
