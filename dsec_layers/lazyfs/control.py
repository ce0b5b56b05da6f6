"""The control socket of the daemon: lines in, lines out, a thread for each connection."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from dsec_layers.errors import DsecError
from dsec_layers.lazyfs import protocol
from dsec_layers.linux import local_socket

Answer = Callable[[protocol.Request], msgspec.Struct]
_PAUSE_S = 0.1
_log = logging.getLogger(__name__)


class ControlSocket:
    """Listens in the folder `run`. Errors that `answer` raises go to the client.

    After an answer has been sent, `sent` is called with its request.
    """

    def __init__(self, run: Path, answer: Answer, sent: Callable[[protocol.Request], None]) -> None:
        self._answer = answer
        self._sent = sent
        self._server = local_socket.listen(run, "daemon.sock")

    def start(self) -> None:
        """Begin to accept connections."""
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError as error:  # out of descriptors, for a moment; nobody else could accept
                _log.warning("a client cannot be accepted: %s", error)
                time.sleep(_PAUSE_S)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                if local_socket.peer_uid(connection) not in (0, os.geteuid()):
                    return
                while line := lines.readline(protocol.MAX_LINE_BYTES):
                    self._converse(connection, line)
        except OSError as error:
            _log.info("a client went away: %s", error)

    def _converse(self, connection: socket.socket, line: bytes) -> None:
        request = None
        try:
            request = protocol.decode_request(line)
            answer = protocol.encode_answer(self._answer(request))
        except DsecError as error:
            _log.warning("request refused: %s", error)
            request, answer = None, protocol.encode_answer(error)
        except Exception as error:
            _log.exception("request failed")
            request, answer = None, protocol.encode_answer(error)
        connection.sendall(answer)
        if request is not None:
            self._sent(request)
