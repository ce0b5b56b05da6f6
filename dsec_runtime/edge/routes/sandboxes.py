"""Sandboxes: made, listed, changed, ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dsec_runtime.edge.calls import Call, Operation, Query
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.sandboxes import not_possible
from dsec_runtime.edge.service import Edge
from dsec_runtime.edge.transitions import FINAL
from dsec_runtime.errors import InvalidRequestError, StateConflictError
from dsec_runtime.messages import (
    ClaimRequest,
    ForkRequest,
    LabelsRequest,
    LeaseAnswer,
    LeaseRequest,
    NetworkRequest,
    PauseAnswer,
    SnapshotAnswer,
    SnapshotRequest,
    UsageAnswer,
)
from dsec_runtime.spec import Lifetime, NetworkCounts, NetworkRule, SandboxInfo, SandboxSpec


async def create(call: Call) -> object:
    """Make a sandbox and wait until it runs."""
    spec = call.body(SandboxSpec)
    edge = call.edge
    timeout_s = call.number("timeout_s")
    entry = await edge.creating.create(call.principal, spec, call.key, timeout_s or None)
    return entry.info()


async def list_(call: Call) -> object:
    """The sandboxes that fit all that is asked for, the oldest first."""
    return [entry.info() for entry in _chosen(call)]


async def get(call: Call) -> object:
    """What is known of a sandbox."""
    return call.entry().info()


async def stop(call: Call) -> object:
    """End it."""
    entry, edge = call.entry(), call.edge
    await edge.driving.finish(edge.life.stop(entry, f"stopped by {call.principal.name}"))
    return entry.info()


async def pause(call: Call) -> object:
    """Freeze it and give its memory back."""
    return PauseAnswer(
        freed_bytes=await call.edge.driving.finish(call.edge.life.pause(call.entry()))
    )


async def resume(call: Call) -> object:
    """Let it go on."""
    entry = call.entry()
    async with call.edge.life.using(entry):
        return entry.info()


async def snapshot(call: Call) -> object:
    """Make a layer of what it wrote."""
    entry, wanted = call.entry(), call.body(SnapshotRequest)
    work = call.edge.life.snapshot(entry, wanted.reference, wanted.options)
    digest = await call.edge.driving.finish(work)
    return SnapshotAnswer(reference=wanted.reference, digest=digest)


async def fork(call: Call) -> object:
    """Sandboxes that begin with its files."""
    creating, entry = call.edge.creating, call.entry()
    work = creating.fork(call.principal, entry, call.body(ForkRequest), call.key)
    return [each.info() for each in await call.edge.driving.finish(work)]


async def set_network(call: Call) -> object:
    """Give it other rules."""
    entry, rules = call.entry(), call.body(NetworkRequest).rules
    await call.edge.driving.finish(_set_network(call.edge, entry, rules))
    return entry.info()


async def _set_network(edge: Edge, entry: Entry, rules: tuple[NetworkRule, ...]) -> None:
    """First what can fail, then the journal: a start lets the rules of the journal hold."""
    async with entry.lock:
        if entry.state in FINAL or entry.row.running is None:
            raise not_possible(entry, "be changed")
        await edge.networks.apply(entry.row.id, rules)
        edge.sandboxes.respecify(entry, network=rules)


async def network_counts(call: Call) -> object:
    """What its network was allowed and refused; a paused one stays paused."""
    entry = call.entry()
    if entry.state in FINAL:
        raise not_possible(entry, "be measured")
    return await call.edge.networks.counts(entry.row.id)


async def set_lifetime(call: Call) -> object:
    """Change when it is ended by itself. Loses against its end, if that has begun."""
    entry = call.entry()
    entry.row.used_s = call.edge.sandboxes.clock()
    call.edge.sandboxes.respecify(entry, lifetime=call.body(Lifetime))
    return entry.info()


async def set_labels(call: Call) -> object:
    """Set and remove labels."""
    entry, changes = call.entry(), call.body(LabelsRequest).labels
    merged = {**entry.row.spec.labels, **changes}
    labels = {name: value for name, value in merged.items() if value is not None}
    call.edge.sandboxes.respecify(entry, labels=labels)
    return entry.info()


async def claim(call: Call) -> object:
    """Become its owner, if it is still the expected one's."""
    entry, wanted = call.entry(), call.body(ClaimRequest)
    if entry.row.spec.owner not in (wanted.expected, wanted.owner):
        raise StateConflictError(
            f"sandbox {entry.row.id} belongs to {entry.row.spec.owner}",
            hint="another has claimed it first",
        )
    call.edge.sandboxes.respecify(entry, owner=wanted.owner)
    call.edge.creating.lease(call.principal, wanted.owner)
    return entry.info()


async def usage(call: Call) -> object:
    """What it uses; a paused one stays paused."""
    entry = call.entry()
    found = await call.edge.life.usage(entry)
    return msgspec.convert(found, UsageAnswer, from_attributes=True)


async def hold_lease(call: Call) -> object:
    """Say that an owner lives."""
    owner: str = call.request.path_params["owner"]
    sandboxes = call.edge.sandboxes
    ttl_s = call.body(LeaseRequest).ttl_s
    lease = sandboxes.journal.hold(call.principal.name, owner, ttl_s, sandboxes.clock())
    return LeaseAnswer(owner=owner, ends_s=lease.ends_s)


async def end_lease(call: Call) -> object:
    """Say that an owner has gone: its sandboxes end at the next sweep."""
    owner: str = call.request.path_params["owner"]
    sandboxes = call.edge.sandboxes
    sandboxes.journal.hold(call.principal.name, owner, 0.0, sandboxes.clock())
    return None


def _chosen(call: Call) -> Iterator[Entry]:
    asked = call.request.query_params
    states = {state for part in asked.getlist("state") for state in part.split(",")}
    labels = [label.partition("=") for label in asked.getlist("label")]
    if any(not equals for _, equals, _ in labels):
        raise InvalidRequestError("a label is asked for as NAME=VALUE")
    for entry in call.edge.sandboxes.visible(call.principal):
        spec = entry.row.spec
        if states and entry.state.value not in states:
            continue
        if not states and entry.state in FINAL and not call.flag("all"):
            continue
        if "owner" in asked and spec.owner != asked["owner"]:
            continue
        if all(spec.labels.get(name) == value for name, _, value in labels):
            yield entry


_AT = "/v1/sandboxes/{id}"
OPERATIONS = (
    Operation(
        "POST",
        "/v1/sandboxes",
        "Make a sandbox",
        create,
        SandboxSpec,
        SandboxInfo,
        201,
        query=(Query("timeout_s", "number", "Remove it again when it takes longer"),),
        keyed=True,
    ),
    Operation(
        "GET",
        "/v1/sandboxes",
        "List sandboxes",
        list_,
        None,
        list[SandboxInfo],
        query=(
            Query("state", "string", "Only in this state; several with commas"),
            Query("label", "string", "Only with this label, NAME=VALUE; may be repeated"),
            Query("owner", "string", "Only of this owner"),
            Query("all", "boolean", "Those that have ended too"),
        ),
    ),
    Operation("GET", _AT, "Tell of a sandbox", get, None, SandboxInfo),
    Operation("DELETE", _AT, "End a sandbox", stop, None, SandboxInfo, audit="stop"),
    Operation("POST", _AT + "/pause", "Pause", pause, None, PauseAnswer, audit="pause"),
    Operation("POST", _AT + "/resume", "Resume", resume, None, SandboxInfo, audit="resume"),
    Operation(
        "POST",
        _AT + "/snapshot",
        "Make a layer of its changes",
        snapshot,
        SnapshotRequest,
        SnapshotAnswer,
        audit="snapshot",
    ),
    Operation(
        "POST",
        _AT + "/fork",
        "Make sandboxes with its files",
        fork,
        ForkRequest,
        list[SandboxInfo],
        201,
        audit="fork",
        keyed=True,
    ),
    Operation(
        "PUT",
        _AT + "/network",
        "Change its network rules",
        set_network,
        NetworkRequest,
        SandboxInfo,
        audit="network",
    ),
    Operation(
        "GET",
        _AT + "/network",
        "Tell what its network did and was refused",
        network_counts,
        None,
        NetworkCounts,
    ),
    Operation(
        "PUT",
        _AT + "/lifetime",
        "Change when it is ended",
        set_lifetime,
        Lifetime,
        SandboxInfo,
        audit="lifetime",
    ),
    Operation(
        "PATCH",
        _AT + "/labels",
        "Set and remove labels",
        set_labels,
        LabelsRequest,
        SandboxInfo,
        audit="labels",
    ),
    Operation(
        "POST",
        _AT + "/claim",
        "Become its owner",
        claim,
        ClaimRequest,
        SandboxInfo,
        audit="claim",
    ),
    Operation("GET", _AT + "/usage", "Tell what it uses", usage, None, UsageAnswer),
    Operation(
        "PUT",
        "/v1/owners/{owner}/lease",
        "Say that an owner lives",
        hold_lease,
        LeaseRequest,
        LeaseAnswer,
    ),
    Operation(
        "DELETE", "/v1/owners/{owner}/lease", "Say that an owner has gone", end_lease, status=204
    ),
)
