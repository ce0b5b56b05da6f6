"""Connections whose other end may go without a word."""

from __future__ import annotations

import socket

from dsec_runtime import alive


def test_those_that_a_listener_accepts_are_watched_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        alive.watch_peer(listener)
        with socket.create_connection(listener.getsockname()) as client:
            alive.watch_peer(client)
            with listener.accept()[0] as accepted:
                for each in (client, accepted):
                    assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                    assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 35000


def test_a_unix_socket_needs_none() -> None:
    left, right = socket.socketpair()
    with left, right:
        alive.watch_peer(left)
        left.send(b"x")
        assert right.recv(1) == b"x"


def test_a_client_waits_for_several_signs_of_life() -> None:
    assert alive.SILENCE_S > 3 * alive.KEEPALIVE_S
