"""A web server on the loopback interface, for tests of what is fetched."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Page:
    """An answer. `announced` overrides the length that is told."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    announced: int | None = None


@dataclass
class Web:
    """A running server: its pages by path, and the paths that were asked for."""

    address: str
    pages: dict[str, Page]
    asked: list[str]


@contextlib.contextmanager
def serving() -> Iterator[Web]:
    """A server until the context ends."""
    web = Web("", {}, [])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked.append(self.path)
            page = web.pages.get(self.path, Page(status=404))
            self.send_response(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            length = len(page.body) if page.announced is None else page.announced
            self.send_header("Content-Length", str(length))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(page.body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
