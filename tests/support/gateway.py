"""A gateway before a registry, which asks for tokens, redirects, fails and falls short as told."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_DROPPED = ("transfer-encoding", "connection", "content-length", "date", "server")
_PIECE = 1 << 16


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    size: int


@dataclass
class Fault:
    """What happens to a request instead of its answer, or to its answer.

    `status` is answered with `headers`; `cut` bytes of the body are sent before the connection
    ends, with the full length announced unless `hide_length`, and not before `silence` is set;
    `drop` takes the request's body and then hangs up, having handed `forward` bytes of it on.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    silence: threading.Event | None = None
    hide_length: bool = False
    no_range: bool = False
    drop: bool = False
    forward: bool = False
    altered: Callable[[bytes], bytes] | None = None


# Told of each request, returns what shall go wrong with it.
Plan = Callable[[Asked], Fault | None]


@dataclass
class Gateway:
    """A running gateway. `tokens` are those that are taken; without a realm none are asked for.

    Without `mounts` a mount is the beginning of an upload.
    """

    address: str = ""
    upstream: str = ""
    plan: Plan = lambda _asked: None
    asked: list[Asked] = field(default_factory=list)
    realm: str = ""
    basic: str = ""
    tokens: dict[str, set[str]] = field(default_factory=dict)
    mounts: bool = True

    @property
    def url(self) -> str:
        """A store behind it."""
        return f"oci+http://{self.address}/team/layers"

    def methods(self, method: str, pattern: str = "") -> list[Asked]:
        """The requests of one method whose path fits."""
        return [
            each for each in self.asked if each.method == method and re.search(pattern, each.path)
        ]

    def refusal(self, asked: Asked) -> Fault | None:
        """The 401 for a request without the right to what it does."""
        sent = asked.headers.get("authorization", "")
        if self.basic and sent != self.basic:
            return Fault(401, {"WWW-Authenticate": 'Basic realm="test"'})
        if not self.realm:
            return None
        wanted = _scopes(asked)
        if wanted <= self.tokens.get(sent.removeprefix("Bearer "), set()):
            return None
        scope = _text(wanted)
        return Fault(
            401,
            {"WWW-Authenticate": f'Bearer realm="{self.realm}",service="test",scope="{scope}"'},
        )


def once(match: Callable[[Asked], bool], *faults: Fault) -> Plan:
    """The faults one after another for the requests that match, and then none."""
    left = list(faults)
    lock = threading.Lock()

    def plan(asked: Asked) -> Fault | None:
        with lock:
            return left.pop(0) if left and match(asked) else None

    return plan


def always(match: Callable[[Asked], bool], fault: Fault) -> Plan:
    """The fault for every request that matches."""
    return lambda asked: fault if match(asked) else None


@contextlib.contextmanager
def before(upstream: str) -> Iterator[Gateway]:
    """A gateway before the registry at `upstream` until the context ends."""
    gateway = Gateway(upstream=upstream)

    class Handler(_Handler):
        front = gateway

    with _serving(Handler) as address:
        gateway.address = address
        yield gateway


@dataclass
class TokenServer:
    """Gives tokens, which live for `life_s`; `asked` are the scopes and the form of each request.

    `refuse` refuses all; `narrow` gives tokens for nothing.
    """

    gateway: Gateway
    url: str = ""
    basic: str = ""
    life_s: int = 300
    refuse: bool = False
    narrow: bool = False
    asked: list[tuple[str, list[str]]] = field(default_factory=list)

    def give(self, authorization: str, scopes: list[str]) -> dict[str, object] | None:
        """A new token, or None."""
        self.asked.append((authorization, scopes))
        if self.refuse or (self.basic and authorization != self.basic):
            return None
        token = f"token-{len(self.asked)}"
        self.gateway.tokens[token] = set() if self.narrow else _expanded(scopes)
        return {"token": token, "expires_in": self.life_s}


@contextlib.contextmanager
def token_server(gateway: Gateway) -> Iterator[TokenServer]:
    """A server that the gateway sends for tokens, until the context ends."""
    server = TokenServer(gateway)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            scopes = [each for scope in query.get("scope", []) for each in scope.split()]
            self._answer(self.headers.get("Authorization", ""), scopes)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer(form["refresh_token"][0], form["scope"][0].split())

        def _answer(self, who: str, scopes: list[str]) -> None:
            given = server.give(who, scopes)
            body = json.dumps(given or {"errors": [{"code": "DENIED", "message": "no"}]}).encode()
            self.send_response(200 if given else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with _serving(Handler) as address:
        server.url = gateway.realm = f"http://{address}/token"
        yield server


@dataclass
class SignedStorage:
    """Where blobs are redirected to: each URL works `uses` times, and no header may tell who."""

    upstream: str
    address: str = ""
    uses: int = 1000
    cut: int | None = None
    given: dict[str, int] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)

    def fault(self, asked: Asked) -> Fault | None:
        """The redirect for a blob."""
        if asked.method not in ("GET", "HEAD") or "/blobs/sha256:" not in asked.path:
            return None
        signature = f"{len(self.given)}"
        self.given[signature] = self.uses
        location = f"http://{self.address}{asked.path}?signature={signature}"
        return Fault(307, {"Location": location})


@contextlib.contextmanager
def signed_storage(upstream: str) -> Iterator[SignedStorage]:
    """A storage until the context ends. It gives no HEAD, as URLs are signed for GET."""
    storage = SignedStorage(upstream)

    class Handler(_Handler):
        front = Gateway(upstream=upstream)

        def handle_all(self) -> None:
            storage.headers.append({key.lower(): value for key, value in self.headers.items()})
            signature = parse_qs(urlsplit(self.path).query).get("signature", [""])[0]
            left = storage.given.get(signature, 0)
            if self.command == "HEAD" or left <= 0:
                self.answer_fault(Fault(403, body=b"<Error>expired</Error>"))
                return
            storage.given[signature] = left - 1
            cut, storage.cut = storage.cut, None
            self.path = self.path.partition("?")[0]
            self.hand_on(b"", Fault(cut=cut) if cut is not None else None)

    with _serving(Handler) as address:
        storage.address = address
        yield storage


class _Handler(BaseHTTPRequestHandler):
    front: Gateway
    protocol_version = "HTTP/1.1"

    def handle_all(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        headers = {key.lower(): value for key, value in self.headers.items()}
        if not self.front.mounts:  # as the specification has it for who cannot mount
            self.path = self.path.partition("?mount=")[0]
        asked = Asked(self.command, self.path, headers, length)
        self.front.asked.append(asked)
        fault = self.front.refusal(asked) or self.front.plan(asked)
        if fault is not None and fault.drop:
            if fault.forward:
                response, connection = self.ask_upstream(body, {})
                response.read()
                connection.close()
            self.close_connection = True
        elif fault is not None and fault.status:
            self.answer_fault(fault)
        else:
            self.hand_on(body, fault)

    def do_GET(self) -> None:
        self.handle_all()

    do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = do_GET

    def answer_fault(self, fault: Fault) -> None:
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(fault.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(fault.body)

    def ask_upstream(
        self, body: bytes, without: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self.front.upstream, timeout=60)
        skipped = (*_DROPPED, "host", "authorization", *without)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in skipped}
        connection.request(self.command, self.path, body, {**headers, "Host": self.headers["Host"]})
        return connection.getresponse(), connection

    def hand_on(self, body: bytes, fault: Fault | None) -> None:
        without = {"range": ""} if fault and fault.no_range else {}
        response, connection = self.ask_upstream(body, without)
        with contextlib.closing(connection):
            data = response.read()
            if fault and fault.altered:
                data = fault.altered(data)
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _DROPPED:
                    self.send_header(name, value)
            length = response.getheader("Content-Length") or str(len(data))
            length = length if self.command == "HEAD" else str(len(data))
            if fault and fault.hide_length:
                self.send_header("Connection", "close")
                self.close_connection = True
            else:
                self.send_header("Content-Length", length)
            self.end_headers()
            if fault and fault.cut is not None:
                data, self.close_connection = data[: fault.cut], True
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)
            if fault and fault.silence:
                fault.silence.wait()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def basic(user: str, password: str) -> str:
    """An Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _scopes(asked: Asked) -> set[str]:
    """What a request needs, one action each."""
    url = urlsplit(asked.path)
    if url.path == "/v2/_catalog":
        return {"registry:catalog:*"}
    match = re.fullmatch(r"/v2/(.+)/(?:blobs|manifests|tags|referrers)/.*", url.path)
    if match is None:
        return set()
    actions = {"GET": ("pull",), "HEAD": ("pull",), "DELETE": ("delete",)}
    found = {
        f"repository:{match[1]}:{action}" for action in actions.get(asked.method, ("pull", "push"))
    }
    for source in parse_qs(url.query).get("from", []):
        found.add(f"repository:{source}:pull")
    return found


def _expanded(scopes: list[str]) -> set[str]:
    found = set()
    for scope in scopes:
        head, _, actions = scope.rpartition(":")
        found |= {f"{head}:{action}" for action in actions.split(",")}
    return found


def _text(scopes: set[str]) -> str:
    by_head: dict[str, list[str]] = {}
    for scope in sorted(scopes):
        head, _, action = scope.rpartition(":")
        by_head.setdefault(head, []).append(action)
    return " ".join(f"{head}:{','.join(actions)}" for head, actions in by_head.items())
