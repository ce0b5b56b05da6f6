"""The description of the API, made from the table of operations and the types of `spec`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dsec_layers import __version__
from dsec_runtime.edge.calls import Operation, Query
from dsec_runtime.edge.sockets import SocketOperation
from dsec_runtime.messages import JSON, KEY_HEADER, ExecAnswer
from dsec_runtime.spec import Problem

_REF: Final = "#/components/schemas/{name}"
_KEY: Final = {
    "name": KEY_HEADER,
    "in": "header",
    "schema": {"type": "string", "maxLength": 200},
    "description": "The same key and body is the same request, also when it is sent again",
}


def document(
    operations: Iterable[Operation], sockets: Iterable[SocketOperation]
) -> dict[str, object]:
    """An OpenAPI 3.1 document."""
    operations = list(operations)
    kinds = [each.request for each in operations] + [each.response for each in operations]
    known: list[Any] = [kind for kind in kinds if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*known, Problem, ExecAnswer], ref_template=_REF
    )
    by_kind = {repr(kind): schema for kind, schema in zip(known, schemas, strict=False)}
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        described = _operation(operation, by_kind)
        paths.setdefault(_plain(operation.path), {})[operation.method.lower()] = described
    for socket in sockets:
        paths.setdefault(_plain(socket.path), {})["get"] = _socket(socket)
    return {
        "openapi": "3.1.0",
        "info": {"title": "DSec edge", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(operation: Operation, by_kind: dict[str, dict[str, Any]]) -> dict[str, object]:
    answer: dict[str, object] = {"description": "Done"}
    if operation.response is not None:
        answer["content"] = {operation.sends: {"schema": by_kind[repr(operation.response)]}}
    elif operation.sends != JSON:
        answer["content"] = {operation.sends: {}}
    parameters = _parameters(operation.path, operation.query)
    described: dict[str, object] = {
        "summary": operation.summary,
        "operationId": _name(operation.method, operation.path),
        "parameters": [*parameters, _KEY] if operation.keyed else parameters,
        "responses": {
            str(operation.status): answer,
            "default": {
                "description": "A problem",
                "content": {JSON: {"schema": {"$ref": _REF.format(name="Problem")}}},
            },
        },
    }
    if operation.request is not None:
        body = {JSON: {"schema": by_kind[repr(operation.request)]}}
        described["requestBody"] = {"required": True, "content": body}
    elif operation.takes != JSON:
        described["requestBody"] = {"required": True, "content": {operation.takes: {}}}
    return described


def _socket(socket: SocketOperation) -> dict[str, object]:
    return {
        "summary": socket.summary,
        "operationId": _name("open", socket.path),
        "description": "A WebSocket with binary messages; see docs/edge.md.",
        "parameters": _parameters(socket.path, socket.query),
        "responses": {"101": {"description": "Switched to WebSocket"}},
    }


def _parameters(path: str, query: Iterable[Query]) -> list[dict[str, object]]:
    in_path: list[dict[str, object]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)", path)
    ]
    in_query: list[dict[str, object]] = [
        {
            "name": each.name,
            "in": "query",
            "required": each.required,
            "schema": {"type": each.kind},
            "description": each.about,
        }
        for each in query
    ]
    return in_path + in_query


def _plain(path: str) -> str:
    return re.sub(r":\w+}", "}", path)


def _name(method: str, path: str) -> str:
    words = re.findall(r"\w+", re.sub(r"{(\w+)(:\w+)?}", r"\1", path))
    return "_".join([method.lower(), *words])
