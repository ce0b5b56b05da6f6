"""WebSockets of the API: accepted, guarded, and closed with the reason when something fails."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import structlog
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from dsec_runtime.edge.calls import Query, as_problem
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import InvalidRequestError, SandboxError, StateConflictError
from dsec_runtime.messages import OWNER_HEADER

_log = structlog.get_logger("dsec.edge.sockets")
_NORMAL, _FAILED = 1000, 4000


class SocketCall(NamedTuple):
    """An accepted WebSocket, and the sandbox that it is about, if it is about one."""

    edge: Edge
    socket: WebSocket
    principal: Principal
    found: Entry | None

    @property
    def entry(self) -> Entry:
        """The sandbox of the path."""
        assert self.found is not None
        return self.found

    def offset(self, name: str) -> int:
        """A byte offset in the query, 0 when it is not there. Raises InvalidRequestError."""
        found = self.socket.query_params.get(name, "0")
        if not found.isdecimal():
            raise InvalidRequestError(f"{name} is not a byte offset")
        return int(found)


class SocketOperation(NamedTuple):
    """A WebSocket at a path."""

    path: str
    summary: str
    handler: Callable[[SocketCall], Awaitable[None]]
    query: tuple[Query, ...] = ()


class SocketEndpoint:
    """The same as an ASGI application."""

    def __init__(self, edge: Edge, operation: SocketOperation) -> None:
        self._edge = edge
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. An error is a text message, a Problem, and status 4000."""
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        status = _NORMAL
        try:
            principal: Principal = scope["state"]["principal"]
            found = self._find(socket, principal)
            await self._operation.handler(SocketCall(self._edge, socket, principal, found))
        except WebSocketDisconnect:
            return
        except Exception as error:  # the last place that can tell the client
            status = _FAILED
            if not isinstance(error, SandboxError):
                _log.exception("bug", operation=self._operation.summary)
                error = SandboxError("the edge failed at this; its log tells more")
            told = msgspec.json.encode(as_problem(error)).decode()
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(told)
        finally:
            counted = "101" if status == _NORMAL else str(status)
            self._edge.metrics.requests.labels(self._operation.path, counted).inc()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(status)

    def _find(self, socket: WebSocket, principal: Principal) -> Entry | None:
        if "id" not in socket.path_params:
            return None
        entry = self._edge.sandboxes.find(principal, socket.path_params["id"])
        owner = socket.headers.get(OWNER_HEADER)
        if owner and entry.row.spec.owner not in (None, owner):
            raise StateConflictError(
                f"sandbox {entry.row.id} belongs to {entry.row.spec.owner}",
                hint="it was claimed by another owner",
            )
        return entry
