"""Requests to one registry: signed in, retried with bounds, timed, redirected without credentials.

The session and the exchange of one request come from `oras`. Its retries, which can last for two
minutes and cannot be told otherwise, are left out, and what is sent is always short enough to be
sent again.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from oras.provider import Registry  # type: ignore[import-untyped]

from dsec_layers import __version__
from dsec_layers.errors import StoreError
from dsec_layers.registry.connections import Connections
from dsec_layers.registry.oci import answers, credentials
from dsec_layers.registry.oci.endpoint import Endpoint
from dsec_layers.registry.oci.signin import RefusedError, SignedCall, SignIn
from dsec_layers.registry.patience import Patience, stop_when_given_up

CONNECT_S: Final = 10.0
SILENCE_S: Final = 60.0
_CONNECTIONS: Final = 32
_MAX_HOPS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_BUSY: Final = (429, 500, 502, 503, 504)
# What a signed URL says when its time is over: the registry is asked for another one.
_EXPIRED: Final = (400, 401, 403, 410)


class _Adapter(requests.adapters.HTTPAdapter):
    """Makes connections that are among `connections`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        super().__init__(pool_maxsize=_CONNECTIONS)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self._watch(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        made = super().proxy_manager_for(*args, **options)
        self._watch(made)
        return made

    def _watch(self, manager: urllib3.PoolManager) -> None:
        pools = urllib3.poolmanager.pool_classes_by_scheme
        among = {scheme: self._connections.among(pool) for scheme, pool in pools.items()}
        manager.pool_classes_by_scheme = among


class _Session(requests.Session):
    """One pool of connections, safe for many threads: no cookies, no .netrc, always timed."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.auth = lambda request: request  # else .netrc would take the place of our header
        self.headers["User-Agent"] = f"dsec-layers/{__version__}"
        self.headers["Accept-Encoding"] = "identity"
        adapter = _Adapter(connections)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def request(self, *args: Any, **options: Any) -> requests.Response:
        options.setdefault("timeout", (CONNECT_S, SILENCE_S))
        return super().request(*args, **{**options, "allow_redirects": False})


class Client:
    """Speaks to `endpoint`. Safe for many threads. `repository` only helps to find credentials."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        repository: str = "",
        patience: Patience | None = None,
        find: Callable[[], credentials.Credentials | None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.patience = patience or Patience()
        self._stopped = threading.Event()
        self._connections = Connections()
        self._registry = Registry(
            hostname=endpoint.address, insecure=endpoint.plain_http, tls_verify=endpoint.verify
        )
        policy = self._registry.session.cookies.get_policy()  # none are taken
        self._registry.session.close()
        self._registry.session = _Session(self._connections)
        self._registry.session.cookies.set_policy(policy)
        find = find or (lambda: credentials.find(endpoint.host, repository))
        self._sign_in = SignIn(endpoint, self._registry.session, find)
        stop_when_given_up(self)

    def close(self) -> None:
        """Close the connections. The client stays usable."""
        self._registry.session.close()

    def stop(self) -> None:
        """Let no thread wait any more, for an answer or to ask again: it gets StoreError."""
        self._stopped.set()
        self._connections.stop()

    def pause(self, number: int, asked_s: float = 0.0) -> None:
        """Wait after the attempt `number`. Raises StoreError when the client has been stopped."""
        wait = self.patience.sleep or self._stopped.wait
        wait(self.patience.delay_s(number, asked_s))
        if self._stopped.is_set():
            raise StoreError(f"the transfer with {self.endpoint.host} was stopped")

    @contextlib.contextmanager
    def answer(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        doing: str,
        expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        again: bool = True,
    ) -> Iterator[requests.Response]:
        """Send a request and give its answer, whose body is not read yet.

        `path` begins behind the host, or is a whole URL, which gets no credentials when it leads to
        another one. `scope` is what tokens are asked for; `doing` stands in errors. Without `again`
        it is sent once. Raises NotFoundError, NoSpaceError or StoreError when the status is not
        `expected`.
        """
        url = urljoin(self.endpoint.origin, path)
        call = _Call(method, url, scope, doing, expected, dict(headers or {}), data)
        response = self._patiently(call, again)
        try:
            if response.status_code not in expected:
                raise answers.failure(response, doing)
            yield response
        finally:
            answers.finish(response)

    def whole(
        self, path: str, *, scope: str, doing: str, most_bytes: int, **options: Any
    ) -> tuple[requests.Response, bytes]:
        """GET something short: its answer and all of its body, asked for again when it breaks off.

        The rest is as in `answer`. Raises StoreError also when it has more than `most_bytes`.
        """
        for number in range(self.patience.attempts):
            with self.answer("GET", path, scope=scope, doing=doing, **options) as response:
                try:
                    return response, answers.bounded(response, most_bytes)
                except answers.BROKEN as error:
                    broken = error
            if number + 1 < self.patience.attempts:
                self.pause(number)
        message = f"{doing}: {self.endpoint.host} keeps breaking off: {_cause(broken)}"
        raise StoreError(message) from broken

    def _patiently(self, call: _Call, again: bool) -> requests.Response:
        attempts = self.patience.attempts if again else 1
        for number in range(attempts):
            asked_s = 0.0
            try:
                response = self._follow(call)
            except requests.exceptions.SSLError as error:
                raise self._no_tls(call, error) from error
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                reason: Exception = StoreError(
                    f"{call.doing}: cannot reach {self.endpoint.address}: {_cause(error)}"
                )
            else:
                if not self._may_pass(call, response):
                    return response
                asked_s = answers.retry_after_s(response) or 0.0
                reason = answers.failure(response, call.doing)
                answers.finish(response)
            if asked_s > self.patience.most_asked_s:
                raise StoreError(f"{reason}; it asks to wait {asked_s:.0f} s") from reason
            if number + 1 < attempts:
                self.pause(number, asked_s)
        raise reason

    def _may_pass(self, call: _Call, response: requests.Response) -> bool:
        """Whether the same request can give another answer soon."""
        status = response.status_code
        if status in call.expected:
            return False
        return status in _BUSY or (status in _EXPIRED and not self._is_ours(response.url))

    def _follow(self, call: _Call) -> requests.Response:
        """Send a request, to where it is redirected too; another host never sees who we are."""
        url = call.url
        for _ in range(_MAX_HOPS):
            response = self._send(call, url)
            location = response.headers.get("Location")
            if response.status_code not in _REDIRECTS or not location:
                return response
            if call.method not in ("GET", "HEAD"):
                return response
            url = urljoin(url, location)
            answers.finish(response)
            wanted = ("http", "https") if self.endpoint.plain_http else ("https",)
            if urlsplit(url).scheme not in wanted:
                raise StoreError(f"{call.doing}: {self.endpoint.address} redirects to {_bare(url)}")
        raise StoreError(f"{call.doing}: {self.endpoint.address} redirects without end")

    def _send(self, call: _Call, url: str) -> requests.Response:
        session = self._registry.session
        if not self._is_ours(url):
            sent: requests.Response = session.request(
                call.method,
                url,
                headers=call.headers,
                data=call.data,
                stream=True,
                verify=self.endpoint.verify,
            )
            return sent
        bound = copy.copy(self._registry)
        bound.auth = SignedCall(self._sign_in, call.scope)
        headers = {**call.headers, **self._sign_in.header(call.scope)}
        try:
            answer: requests.Response = _exchange(
                bound, url, call.method, call.data, headers, stream=True
            )
        except RefusedError as error:
            return error.response
        return answer

    def _is_ours(self, url: str | None) -> bool:
        return _origin(url or "") == _origin(self.endpoint.origin)

    def _no_tls(self, call: _Call, error: Exception) -> Exception:
        return StoreError(
            f"{call.doing}: no trusted connection to {self.endpoint.address}: {_cause(error)}",
            hint="name its authority (?ca=FILE, or `ca` in registries.toml, or $SSL_CERT_FILE); "
            "a registry without TLS is oci+http://, or has `plain_http = true` in registries.toml",
        )


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    url: str
    scope: str
    doing: str
    expected: Collection[int]
    headers: dict[str, str]
    data: bytes | None


# What `oras` does for one request, without the retries around it.
_exchange: Final = Registry.do_request.__wrapped__


def pull_scope(repository: str) -> str:
    """What a token must allow to read a repository."""
    return f"repository:{repository}:pull"


def push_scope(repository: str, source: str = "") -> str:
    """What a token must allow to write to a repository, with what is mounted from `source`."""
    scope = f"repository:{repository}:pull,push"
    return f"{scope} {pull_scope(source)}" if source else scope


def delete_scope(repository: str) -> str:
    """What a token must allow to remove something from a repository."""
    return f"repository:{repository}:delete,pull,push"


CATALOG_SCOPE: Final = "registry:catalog:*"


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", port


def _bare(url: str) -> str:
    """A URL without its query, which may hold a signature."""
    return url.partition("?")[0]


def _cause(error: BaseException) -> str:
    """The innermost reason, without the names of classes and addresses around it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error) or type(error).__name__
