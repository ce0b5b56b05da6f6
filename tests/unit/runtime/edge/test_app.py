"""The API as a client of HTTP sees it, over the tier double."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from dsec_runtime.edge.app import OPERATIONS, SOCKETS, Guarded, application
from dsec_runtime.edge.openapi import document
from dsec_runtime.edge.principal import LOCAL, Principal
from dsec_runtime.errors import UnauthorizedError
from dsec_runtime.spec import Problem
from tests.support.edge_doubles import SPEC, HandClock, TierDouble, edge_over

BODY = msgspec.json.encode(SPEC)


@contextlib.asynccontextmanager
async def served(
    tier: TierDouble, clock: HandClock, home: Path, principal: Principal | None = LOCAL
) -> AsyncIterator[httpx.AsyncClient]:
    def authenticate(_: object) -> Principal:
        if principal is None:
            raise UnauthorizedError("who are you?")
        return principal

    async with edge_over(tier, home, clock) as edge:
        app = Guarded(application(edge), authenticate)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
            yield client


def problem(answer: httpx.Response) -> Problem:
    return msgspec.json.decode(answer.content, type=Problem)


async def test_a_life_over_http(tier: TierDouble, clock: HandClock, tmp_path: Path) -> None:
    async with served(tier, clock, tmp_path) as http:
        made = await http.post("/v1/sandboxes", content=BODY, headers={"Idempotency-Key": "k"})
        assert (made.status_code, made.json()["state"]) == (201, "running")
        at = f"/v1/sandboxes/{made.json()['id']}"
        again = await http.post("/v1/sandboxes", content=BODY, headers={"Idempotency-Key": "k"})
        assert again.json()["id"] == made.json()["id"]
        assert (await http.post(at + "/pause")).json()["freed_bytes"] > 0
        assert (await http.get(at)).json()["state"] == "paused"
        labels = await http.patch(at + "/labels", json={"labels": {"a": "b"}})
        assert labels.json()["spec"]["labels"] == {"a": "b"}
        assert (await http.get("/v1/sandboxes?label=a%3Db")).json()[0]["state"] == "paused"
        assert (await http.get("/v1/sandboxes?label=a%3Dc")).json() == []
        assert (await http.get(at + "/usage")).json()["pids"] == 3
        assert (await http.post(at + "/resume")).json()["state"] == "running"
        forks = await http.post(at + "/fork", json={"count": 2})
        assert (forks.status_code, len(forks.json())) == (201, 2)
        ended = await http.delete(at)
        assert (ended.json()["state"], ended.json()["reason"]) == ("stopped", "stopped by local")
        refused = await http.post(at + "/pause")
        assert (refused.status_code, problem(refused).code) == (409, "conflict")
        log = (await http.get(at + "/events")).text.splitlines()
        kinds = [msgspec.json.decode(line)["kind"] for line in log]
        assert {"created", "pause", "resume", "fork", "stop", "refused"} <= set(kinds)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/v1/sandboxes", b"{", 400, "the body"),
        ("POST", "/v1/sandboxes", b'{"environment": {}, "colour": 1}', 400, "colour"),
        ("POST", "/v1/sandboxes", b'{"environment": {}}', 400, "an environment is one of"),
        ("POST", "/v1/sandboxes?timeout_s=soon", BODY, 400, "timeout_s"),
        ("GET", "/v1/sandboxes?label=x", b"", 400, "NAME=VALUE"),
        ("GET", "/v1/sandboxes/0000", b"", 404, "there is no sandbox 0000"),
        ("DELETE", "/v1/sandboxes/..%2f..", b"", 404, ""),
        ("GET", "/v1/nothing", b"", 404, "/v1/nothing"),
        ("PUT", "/v1/owners/o/lease", b'{"ttl_s": 0}', 400, "ttl_s"),
    ],
)
async def test_bad_requests_are_told(
    tier: TierDouble,
    clock: HandClock,
    tmp_path: Path,
    method: str,
    path: str,
    body: bytes,
    status: int,
    said: str,
) -> None:
    async with served(tier, clock, tmp_path) as http:
        answer = await http.request(method, path, content=body)
        assert answer.status_code == status
        assert said in problem(answer).message
        assert tier.asked == []


async def test_a_body_has_a_bound(tier: TierDouble, clock: HandClock, tmp_path: Path) -> None:
    async with served(tier, clock, tmp_path) as http:
        answer = await http.post("/v1/sandboxes", content=b" " * (17 << 20))
        assert (answer.status_code, "more than" in problem(answer).message) == (400, True)


async def test_nobody_is_let_in_in_doubt(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with served(tier, clock, tmp_path, None) as http:
        for path in ("/v1/health", "/metrics", "/openapi.json", "/v1/nothing"):
            answer = await http.get(path)
            assert (answer.status_code, problem(answer).code) == (401, "unauthorized")


async def test_a_full_node_says_so_in_a_header_too(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with edge_over(tier, tmp_path, clock, max_sandboxes=0) as edge:
        transport = httpx.ASGITransport(app=Guarded(application(edge), lambda _: LOCAL))
        async with httpx.AsyncClient(transport=transport, base_url="http://edge") as http:
            answer = await http.post("/v1/sandboxes", content=BODY)
    assert (answer.status_code, problem(answer).code) == (503, "overloaded")
    assert int(answer.headers["retry-after"]) > 0


async def test_another_owner_is_fenced_off(
    tier: TierDouble, clock: HandClock, tmp_path: Path
) -> None:
    async with served(tier, clock, tmp_path) as http:
        spec = msgspec.json.encode(msgspec.structs.replace(SPEC, owner="mine"))
        at = f"/v1/sandboxes/{(await http.post('/v1/sandboxes', content=spec)).json()['id']}"
        for owner, status in (("mine", 200), ("yours", 409)):
            answer = await http.get(at, headers={"DSec-Owner": owner})
            assert answer.status_code == status
        taken = await http.post(at + "/claim", json={"owner": "yours", "expected": "nobody"})
        assert taken.status_code == 409
        taken = await http.post(at + "/claim", json={"owner": "yours", "expected": "mine"})
        assert taken.json()["spec"]["owner"] == "yours"


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def test_the_description_is_whole() -> None:
    made: Any = msgspec.json.decode(msgspec.json.encode(document(OPERATIONS, SOCKETS)))
    assert made["openapi"].startswith("3.1")
    schemas = made["components"]["schemas"]
    wanted = {each.removeprefix("#/components/schemas/") for each in references(made)}
    assert wanted <= set(schemas)
    assert {"SandboxSpec", "SandboxInfo", "ExecRequest", "Problem"} <= set(schemas)
    names = [way["operationId"] for path in made["paths"].values() for way in path.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS) + len(SOCKETS)
    for path, ways in made["paths"].items():
        for way in ways.values():
            inside = [each["name"] for each in way["parameters"] if each["in"] == "path"]
            assert sorted(f"{{{name}}}" for name in inside) == sorted(
                part for part in path.split("/") if part.startswith("{")
            )
