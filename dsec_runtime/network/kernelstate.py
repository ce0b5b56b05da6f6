"""Reading back what the packet filter has of sandboxes (libnftables-json(5))."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast

from dsec_runtime.linux.nftables import Nftables
from dsec_runtime.network import links
from dsec_runtime.network.addresses import Address, Range
from dsec_runtime.network.ruleset import RECORDED_S, TABLE, Member
from dsec_runtime.network.sandboxes import Sandbox
from dsec_runtime.spec import RefusedDestination

_PROTOCOLS = {6: "tcp", 17: "udp"}

Fields = Mapping[str, object]


def sandboxes(table: Nftables, addresses: Range) -> dict[int, Sandbox]:
    """All that have rules, by their number. Their policies are known by name only.

    Answers are those of which the elements tell.
    """
    found: dict[int, Sandbox] = {}
    now_s = time.monotonic()
    marks = dict(cast("Sequence[tuple[str, int]]", _elements(table, "map", "generation")))
    for address, verdict in _verdicts(table, "rulings"):
        slot = addresses.slot(Address(str(address)))
        member = Member(links.interface(slot), Address(str(address)))
        mark = marks[str(address)]
        found[slot] = Sandbox(member, slot, None, verdict, mark, marks=[mark])
    for kind in ("held", "names"):
        for key, chain in _verdicts(table, kind):
            source, target = _concatenated(key)
            sandbox = found.get(addresses.slot(Address(str(source))))
            if sandbox is None:
                continue
            sandbox.grants[kind, Address(str(target))] = chain
            left_s, names = _told(key)
            for name in reversed(names):
                until_s = now_s + left_s if kind == "names" else now_s
                sandbox.answers.add(name, Address(str(target)), until_s)
    return found


def chains(table: Nftables) -> set[str]:
    """The names of all chains that hold a decision."""
    listed = (cast("Fields", it.get("chain", {})) for it in table.query(f"list chains {_FAMILY}"))
    names = (str(it["name"]) for it in listed if it.get("table") == _TABLE_NAME)
    return {name for name in names if name.startswith(("p_", "c_"))}


def counters(table: Nftables, name: Literal["allowed", "refused_by"]) -> dict[str, tuple[int, int]]:
    """Packets and bytes of each element of a set that counts."""
    found: dict[str, tuple[int, int]] = {}
    for element in _elements(table, "set", name):
        fields = cast("Fields", cast("Fields", element)["elem"])
        counter = cast("Mapping[str, int]", fields["counter"])
        found[str(fields["val"])] = counter["packets"], counter["bytes"]
    return found


def refused(table: Nftables) -> dict[str, list[RefusedDestination]]:
    """Where sandboxes, by their address, wanted to go and may not."""
    found: dict[str, list[RefusedDestination]] = {}
    for element in _elements(table, "set", "refused"):
        source, address, protocol, port = _concatenated(element)
        fields = cast("Fields", cast("Fields", element)["elem"])
        found.setdefault(str(source), []).append(
            RefusedDestination(
                address=str(address),
                protocol=_PROTOCOLS.get(cast("int", protocol), str(protocol)),
                port=cast("int", port),
                packets=cast("Mapping[str, int]", fields["counter"])["packets"],
                ago_s=max(0, RECORDED_S - cast("int", fields["expires"])),
            )
        )
    return found


_FAMILY, _TABLE_NAME = TABLE.split()


def _elements(table: Nftables, kind: Literal["set", "map"], name: str) -> Sequence[object]:
    described = table.query(f"list {kind} {TABLE} {name}")[0][kind]
    return cast("Sequence[object]", cast("Fields", described).get("elem", ()))


def _verdicts(table: Nftables, name: str) -> Iterator[tuple[object, str]]:
    for key, verdict in cast("Sequence[tuple[object, Fields]]", _elements(table, "map", name)):
        yield key, str(cast("Fields", verdict["jump"])["target"])


def _told(element: object) -> tuple[int, list[str]]:
    """How long an element holds, and the words of its comment."""
    fields = cast("Fields", cast("Fields", element).get("elem", {}))
    return cast("int", fields.get("expires", 0)), str(fields.get("comment", "")).split()


def _concatenated(element: object) -> Sequence[object]:
    """The parts of a key, which stands bare or beside its time and counter."""
    fields = cast("Fields", element)
    if "elem" in fields:
        fields = cast("Fields", cast("Fields", fields["elem"])["val"])
    return cast("Sequence[object]", fields["concat"])
