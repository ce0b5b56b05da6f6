"""The control socket when the machine is short of something."""

import errno
import socket
from pathlib import Path

import pytest

from dsec_layers.lazyfs import protocol
from dsec_layers.lazyfs.control import ControlSocket
from dsec_layers.linux import local_socket


class Reluctant:
    """A listening socket that has no descriptor left for its first client."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._refuse = True

    def accept(self) -> tuple[socket.socket, object]:
        if self._refuse:
            self._refuse = False
            raise OSError(errno.EMFILE, "Too many open files")
        return self._server.accept()


def test_being_out_of_descriptors_for_a_moment_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = local_socket.listen(tmp_path, "daemon.sock")
    monkeypatch.setattr(local_socket, "listen", lambda *_: Reluctant(server))
    ControlSocket(tmp_path, lambda _: protocol.Done(), lambda _: None).start()
    with local_socket.connect(tmp_path, "daemon.sock") as client:
        client.settimeout(30)
        client.sendall(protocol.encode_request(protocol.Evict()))
        assert protocol.decode_answer(client.recv(4096), protocol.Done).changed
