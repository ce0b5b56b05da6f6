"""A signal ends a push at once whose server takes requests and does not answer them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dsec_layers.model.reference import Reference
from dsec_layers.registry import marker
from tests.support.cli import Cli, bare
from tests.support.stores import put_layer

__all__ = ["bare"]

NAME = Reference.parse("base/x:1")


class Silent(ThreadingHTTPServer):
    """Keeps leases and says what is needed to begin; asked for a blob, it says nothing."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.over = threading.Semaphore(0), threading.Event()
        port = self.server_address[1]
        self.url = f"s3://bucket/x?anonymous=1&endpoint=http://127.0.0.1:{port}"
        self.removed: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Silent

    def do_GET(self) -> None:
        is_list = "list-type=" in self.path
        self._say(200, b"<ListBucketResult/>" if is_list else marker.encoded())

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(200)

    def do_DELETE(self) -> None:
        self.server.removed.append(self.path)
        self._say(204)

    def do_HEAD(self) -> None:
        self.server.asked.release()
        self.server.over.wait()

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def silent() -> Iterator[Silent]:
    with Silent() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.mark.root
def test_a_push_to_a_server_that_says_nothing(bare: Cli, silent: Silent) -> None:
    put_layer(bare.bench.local, NAME, [b"pack"])
    with bare.start("push", str(NAME), silent.url) as child:
        assert silent.asked.acquire(timeout=60)
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 128 + signal.SIGINT
    assert len(silent.removed) == 1  # the lease
    assert bare.leftovers() == []
