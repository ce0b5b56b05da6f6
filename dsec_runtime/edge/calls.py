"""Requests of the API: one table entry an operation, one dispatcher for all."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import (
    InvalidRequestError,
    OverloadedError,
    SandboxError,
    StateConflictError,
)
from dsec_runtime.messages import JSON, KEY_HEADER, OWNER_HEADER
from dsec_runtime.spec import Problem

T = TypeVar("T")
MAX_BODY_BYTES: Final = 16 << 20
_log = structlog.get_logger("dsec.edge.api")
_encode = msgspec.json.encode


class Query(NamedTuple):
    """A parameter behind the question mark; `kind` is its type in the words of JSON Schema."""

    name: str
    kind: Literal["string", "integer", "number", "boolean"]
    about: str
    required: bool = False


class Operation(NamedTuple):
    """What a method on a path does.

    `handler` returns the answer, or None when it has sent one itself through `Call.send`. `audit`
    names it in the log of the sandbox that it is about.
    """

    method: str
    path: str
    summary: str
    handler: Callable[[Call], Awaitable[object]]
    request: Any = None
    response: Any = None
    status: int = 200
    audit: str | None = None
    query: tuple[Query, ...] = ()
    sends: str = JSON  # the media type of the answer
    takes: str = JSON
    keyed: bool = False  # takes an idempotency key


class Call:
    """One request, as a handler sees it."""

    def __init__(self, edge: Edge, operation: Operation, scope: Scope, receive: Receive) -> None:
        self.edge = edge
        self.operation = operation
        self.request = Request(scope, receive)
        self.principal: Principal = scope["state"]["principal"]
        self.receive = receive
        self.send: Send
        self.seen: Entry | None = None
        self._body: object = None

    def body(self, kind: type[T]) -> T:
        """The body, which is of the operation's type."""
        assert isinstance(self._body, kind)
        return self._body

    def entry(self) -> Entry:
        """The sandbox of the path. Raises UnknownSandboxError, and StateConflictError (fenced)."""
        path_id: str = self.request.path_params["id"]
        entry = self.edge.sandboxes.find(self.principal, path_id)
        owner = self.request.headers.get(OWNER_HEADER)
        if owner and entry.row.spec.owner not in (None, owner):
            raise StateConflictError(
                f"sandbox {path_id} belongs to {entry.row.spec.owner}",
                hint="it was claimed by another owner",
            )
        self.seen = entry
        return entry

    @property
    def key(self) -> str | None:
        """The idempotency key. Raises InvalidRequestError."""
        key = self.request.headers.get(KEY_HEADER)
        if key is not None and not 1 <= len(key) <= 200:
            raise InvalidRequestError("an idempotency key has 1 to 200 characters")
        return key

    def text(self, name: str, default: str | None = None) -> str:
        """A parameter of the query. Raises InvalidRequestError when it is missing."""
        found = self.request.query_params.get(name, default)
        if found is None:
            raise InvalidRequestError(f"the query lacks {name}")
        return found

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number of the query, not negative. Raises InvalidRequestError."""
        found = self.request.query_params.get(name)
        if found is None:
            return default
        try:
            value = float(found)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise InvalidRequestError(f"{name} is not a number from 0 up")
        return value

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number of the query, from 0 up. Raises InvalidRequestError."""
        return int(self.number(name, default) or 0)

    def flag(self, name: str) -> bool:
        """Whether the query has `name=true`."""
        return self.request.query_params.get(name, "").lower() in ("1", "true", "yes")

    async def gone(self) -> None:
        """Wait until the client has left; only once the body has been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def read_body(self) -> None:
        """Decode the body as the operation's type. Raises InvalidRequestError."""
        if self.operation.request is None:
            return
        parts: list[bytes] = []
        size = 0
        async for part in self.request.stream():
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise InvalidRequestError(f"the body has more than {MAX_BODY_BYTES} bytes")
            parts.append(part)
        try:
            self._body = _decoder(self.operation.request).decode(b"".join(parts))
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"the body is not as it should be: {error}") from error


class Endpoint:
    """An operation as an ASGI application."""

    def __init__(self, edge: Edge, operation: Operation) -> None:
        self._edge = edge
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with a Problem when it cannot be done."""
        operation = self._operation
        call = Call(self._edge, operation, scope, receive)
        sent = 0

        async def counted(message: Any) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
            await send(message)

        call.send = counted
        began = time.monotonic()
        try:
            await call.read_body()
            answer = await operation.handler(call)
            if answer is not None or not sent:
                await respond(counted, operation.status, answer)
            self._note(call, began)
        except ClientDisconnect:
            return
        except Exception as error:  # the last place that can tell the client
            problem = _known(error, operation)
            self._note(call, began, problem)
            if sent:
                raise  # the answer is cut off, which the client sees
            await respond(send, problem.status, as_problem(problem), retry_of(problem))
            sent = problem.status
        finally:
            self._edge.metrics.requests.labels(operation.path, str(sent)).inc()

    def _note(self, call: Call, began: float, error: SandboxError | None = None) -> None:
        """A line in the sandbox's log of what was asked, and of what was refused."""
        kind = self._operation.audit if error is None else "refused"
        if call.seen is None or kind is None:
            return
        detail: dict[str, str | int | float | bool | None] = {
            "seconds": round(time.monotonic() - began, 6)
        }
        if error is not None:
            asked = self._operation.audit or self._operation.summary
            detail |= {"asked": asked, "code": error.code, "error": error.message}
        elif path := call.request.query_params.get("path"):
            detail["path"] = path
        self._edge.sandboxes.record(call.seen, kind, call.principal, detail)


async def respond(
    send: Send, status: int, answer: object, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Send `answer` as JSON; nothing is 204."""
    body = b"" if answer is None else _encode(answer)
    sent = [(b"content-length", str(len(body)).encode()), *(headers or [])]
    if body:
        sent.append((b"content-type", b"application/json"))
    elif status == 200:
        status = 204
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def as_problem(error: SandboxError) -> Problem:
    """The error as it travels."""
    return Problem(code=error.code, message=error.message, hint=error.hint, detail=error.detail)


def retry_of(error: SandboxError) -> list[tuple[bytes, bytes]]:
    """Retry-After, for those who read headers."""
    after = error.detail.get("retry_after_s") if isinstance(error, OverloadedError) else None
    return [(b"retry-after", f"{after:.0f}".encode())] if isinstance(after, (int, float)) else []


def _known(error: Exception, operation: Operation) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    _log.exception("bug", operation=operation.summary, exc_info=error)
    return SandboxError("the edge failed at this; its log tells more")


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind)
    return found
