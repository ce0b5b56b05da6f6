"""The edge itself: health, metrics, the description of the API, events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine

import msgspec

from dsec_layers import __version__
from dsec_runtime import alive
from dsec_runtime.edge import metrics
from dsec_runtime.edge.calls import Call, Operation, Query
from dsec_runtime.edge.pressure import load
from dsec_runtime.edge.transitions import FINAL
from dsec_runtime.messages import Event, Health
from dsec_runtime.spec import State, Tier

_encoder = msgspec.json.Encoder()
_LINES = "application/x-ndjson"


async def health(call: Call) -> object:
    """What the edge says of itself."""
    edge, now = call.edge, load()
    return Health(
        status="draining" if edge.admission.draining else "serving",
        version=__version__,
        pid=os.getpid(),
        started_s=edge.started_s,
        tiers=(*edge.driving.tiers, *((Tier.FNCALL,) if edge.fncalls else ())),
        sandboxes={State(state): number for state, number in edge.sandboxes.count().items()},
        creating=edge.admission.creating,
        memory_available_bytes=now.available_bytes,
        memory_pressure=now.memory_pressure,
    )


async def metrics_(call: Call) -> object:
    """For Prometheus."""
    body = call.edge.metrics.text()
    headers = [
        (b"content-type", metrics.CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    await call.send({"type": "http.response.body", "body": body})
    return None


async def events_of(call: Call) -> object:
    """The log of a sandbox; with `follow`, what comes from now on too, until it ends."""
    entry, events = call.entry(), call.edge.events
    with events.listening(entry.row.id) as queue:
        kept = [] if call.flag("new") else list(events.kept(entry.row.id))
        await _begin(call, kept)
        if call.flag("follow") and entry.state not in FINAL:
            await _until_gone(call, _follow(call, queue, entry.row.id))
    await call.send({"type": "http.response.body", "body": b""})
    return None


async def events_of_all(call: Call) -> object:
    """What happens to the sandboxes that are the caller's, from now on."""
    with call.edge.events.listening() as queue:
        await _begin(call, [])
        await _until_gone(call, _follow(call, queue, None))
    await call.send({"type": "http.response.body", "body": b""})
    return None


async def _begin(call: Call, kept: list[Event]) -> None:
    headers = [(b"content-type", _LINES.encode())]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    await _piece(call, _encoder.encode_lines(kept) if kept else b"")


async def _follow(call: Call, queue: asyncio.Queue[Event], sandbox: str | None) -> None:
    """Send events as they come; of one sandbox until it ends."""
    while True:
        try:
            async with asyncio.timeout(alive.KEEPALIVE_S):
                event = await queue.get()
        except TimeoutError:
            await _piece(call, b"\n")  # the connection lives
            continue
        if _is_visible(call, event):
            await _piece(call, msgspec.json.encode(event) + b"\n")
        if sandbox is not None and event.kind == "state" and event.state in FINAL:
            return


def _is_visible(call: Call, event: Event) -> bool:
    entry = call.edge.sandboxes.entries.get(event.sandbox)
    whose = entry.row.principal if entry is not None else event.principal  # that of a task
    return call.principal.is_operator or whose == call.principal.name


async def _until_gone(call: Call, work: Coroutine[object, object, None]) -> None:
    """Do `work` until it is done, the client leaves or the edge ends."""
    tasks = [asyncio.create_task(each) for each in (work, call.gone(), call.edge.ending.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _piece(call: Call, lines: bytes) -> None:
    await call.send({"type": "http.response.body", "body": lines, "more_body": True})


OPERATIONS = (
    Operation("GET", "/v1/health", "Tell how the edge is", health, None, Health),
    Operation("GET", "/metrics", "Figures for Prometheus", metrics_, sends=metrics.CONTENT_TYPE),
    Operation(
        "GET",
        "/v1/sandboxes/{id}/events",
        "The log of a sandbox",
        events_of,
        None,
        Event,
        query=(
            Query("follow", "boolean", "Go on with what happens"),
            Query("new", "boolean", "Leave out what has happened"),
        ),
        sends=_LINES,
    ),
    Operation("GET", "/v1/events", "What happens to all", events_of_all, None, Event, sends=_LINES),
)
