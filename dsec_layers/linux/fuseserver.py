"""Threads that answer the requests of a FUSE connection until it is unmounted."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Mapping

from dsec_layers.linux import fuse
from dsec_layers.linux.fuse import Request

# Answers a request now or later by itself; what it raises instead is answered for it.
Handler = Callable[[Request], None]
_log = logging.getLogger(__name__)


class FuseServer:
    """Hands the requests of `fd` to the `handlers` of their opcodes, in `threads` threads.

    A request without a handler gets ENOSYS, after which the kernel asks for no more of its kind;
    one whose handler raises gets EIO.
    """

    def __init__(self, fd: int, handlers: Mapping[int, Handler], *, threads: int) -> None:
        self._fd = fd
        self._handlers = handlers
        self._threads = [
            threading.Thread(target=self._serve, name=f"fuse-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begin to serve."""
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the file system is unmounted, or for `timeout_s`."""
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if give_up is None else max(0.0, give_up - time.monotonic()))

    def _serve(self) -> None:
        buffer = fuse.RequestBuffer()
        while True:
            try:
                request = buffer.read(self._fd)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    _log.exception("a FUSE thread ends")
                return
            if request is not None:
                self._handle(request)

    def _handle(self, request: Request) -> None:
        handler = self._handlers.get(request.opcode)
        try:
            if handler is None:  # INTERRUPT among them: a fetch under way is worth its end
                fuse.reply_error(self._fd, request.unique, errno.ENOSYS)
            else:
                handler(request)
        except Exception:
            _log.exception("FUSE request %d failed", request.opcode)
            fuse.reply_error(self._fd, request.unique, errno.EIO)
