"""The edge's API as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from dsec_runtime.edge import openapi
from dsec_runtime.edge.calls import Call, Endpoint, Operation, as_problem, respond
from dsec_runtime.edge.principal import LOCAL, Principal
from dsec_runtime.edge.routes import execs, files, fncalls, node, ports, sandboxes
from dsec_runtime.edge.service import Edge
from dsec_runtime.edge.sockets import SocketEndpoint
from dsec_runtime.errors import SandboxError, UnauthorizedError, UnknownSandboxError

Authenticate = Callable[[HTTPConnection], Principal]

# The first are looked at first: commands are what there is most of, and then sandboxes.
OPERATIONS: Final = (
    *execs.OPERATIONS,
    *sandboxes.OPERATIONS,
    *files.OPERATIONS,
    *ports.OPERATIONS,
    *node.OPERATIONS,
    *fncalls.OPERATIONS,
)
SOCKETS: Final = (*execs.SOCKETS, *files.SOCKETS, *fncalls.SOCKETS, *ports.SOCKETS)


def application(edge: Edge) -> ASGIApp:
    """All of the API; who asks must be in `scope["state"]["principal"]` already."""
    routes: list[BaseRoute] = [
        Route(each.path, Endpoint(edge, each), methods=[each.method]) for each in OPERATIONS
    ]
    routes += [WebSocketRoute(each.path, SocketEndpoint(edge, each)) for each in SOCKETS]
    described = Operation("GET", "/openapi.json", "Describe this API", _describe)
    routes.append(Route(described.path, Endpoint(edge, described), methods=["GET"]))
    return Router(routes, default=_nothing, redirect_slashes=False)


class Guarded:
    """An application behind `authenticate`, which raises UnauthorizedError."""

    def __init__(self, app: ASGIApp, authenticate: Authenticate) -> None:
        self._app = app
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find out who asks, and let them pass or not."""
        if scope["type"] == "lifespan":
            return
        try:
            principal = self._authenticate(HTTPConnection(scope))
        except UnauthorizedError as error:
            await _refuse(scope, send, error)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)


def local(_: HTTPConnection) -> Principal:
    """Whoever may open the Unix socket is the operator."""
    return LOCAL


async def _describe(_: Call) -> object:
    return openapi.document(OPERATIONS, SOCKETS)


async def _nothing(scope: Scope, _: Receive, send: Send) -> None:
    path = scope["path"]
    await _refuse(scope, send, UnknownSandboxError(f"there is no {path} in this API"))


async def _refuse(scope: Scope, send: Send, error: SandboxError) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4000, "reason": error.message})
        return
    headers = [(b"www-authenticate", b"Bearer")] if error.status == 401 else []
    await respond(send, error.status, as_problem(error), headers)
