"""The packet filter of the router and of the node, as text for nft(8).

The number of objects does not grow with that of the sandboxes, because the library reads all
objects before each change. A sandbox is one element in each of a few sets; chains belong to
decisions, which many sandboxes share:

    p_DIGEST   the network rules of a policy, the one that decides first
    c_DIGEST   the ports that are open at the addresses of a name

A connection that was judged carries the sandbox's generation as its mark. While that is the
`current` one its packets pass without another look. A change of the rules changes the generation,
and then the next packet of each connection, in either direction, is judged again by where the
connection was made to. `names` opens addresses to new connections until their answer expires,
`held` keeps the connections that have been made through them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dsec_runtime.network.addresses import Address, Network4, Range
from dsec_runtime.network.ports import PROTOCOLS, PortSet, Protocol
from dsec_runtime.network.rules import Policy

TABLE: Final = "inet dsec"
UPLINK: Final = "up"
HELD_S: Final = 24 * 3600
_COMMENT_BYTES: Final = 127  # NFTNL_UDATA_COMMENT_MAXLEN without its zero byte
RECORDED_S: Final = 600  # how long a refused destination is remembered

_OBJECTS = f"""
add table {TABLE}
add set {TABLE} members {{ type ifname . ipv4_addr; }}
add set {TABLE} current {{ type ipv4_addr . mark; }}
add map {TABLE} generation {{ type ipv4_addr : mark; }}
add map {TABLE} rulings {{ type ipv4_addr : verdict; }}
add map {TABLE} names {{ type ipv4_addr . ipv4_addr : verdict; flags timeout; }}
add map {TABLE} held {{ type ipv4_addr . ipv4_addr : verdict; flags timeout; }}
add set {TABLE} allowed {{ type ipv4_addr; counter; }}
add set {TABLE} refused_by {{ type ifname; counter; }}
add set {TABLE} never {{ type ipv4_addr; flags interval; auto-merge; }}
add set {TABLE} refused {{ type ipv4_addr . ipv4_addr . inet_proto . inet_service; size 65536; \
flags dynamic,timeout; timeout {RECORDED_S}s; counter; }}
add set {TABLE} recording {{ type ipv4_addr; size 65536; flags dynamic,timeout; timeout 10m; }}
add set {TABLE} asking {{ type ipv4_addr; size 65536; flags dynamic,timeout; timeout 1m; }}
add set {TABLE} talking {{ type ipv4_addr; size 65536; flags dynamic; }}
add set {TABLE} connections {{ type ipv4_addr; size 65536; flags dynamic; }}
"""

# Of the router, by name: the hook, if it has one, and the rules.
CHAINS: Final[dict[str, tuple[str, ...]]] = {
    # Before fragments are put together and connections tracked: what a sandbox may send at all.
    "prerouting": (
        "type filter hook prerouting priority -450; policy accept;",
        f'iifname "{UPLINK}" accept',
        "meta nfproto != ipv4 goto malformed",
        "iifname . ip saddr != @members goto malformed",
        "ip frag-off & 0x3fff != 0 goto malformed",
        "meta l4proto != { tcp, udp } goto malformed",
    ),
    "malformed": ("", "iifname @refused_by drop", "drop"),
    "input": (
        "type filter hook input priority 0; policy drop;",
        f'iifname "{UPLINK}" drop',
        "ct state invalid drop",
        "ip daddr RESOLVER th dport 53 goto ask",
        "goto refuse",
    ),
    "ask": (
        "",
        "add @asking { ip saddr limit rate over 200/second burst 400 packets } drop",
        "meta l4proto tcp ct state new add @talking { ip saddr ct count over 16 } drop",
        "accept",
    ),
    "forward": (
        "type filter hook forward priority 0; policy drop;",
        "ct state invalid drop",
        f'iifname "{UPLINK}" goto inbound',
        f'oifname != "{UPLINK}" goto refuse',
        "ip daddr @never goto refuse",
        "goto judge",
    ),
    "inbound": (
        "",
        "ct direction original drop",
        "oifname . ip daddr != @members drop",
        "goto judge",
    ),
    "judge": (
        "",
        "ct original ip saddr . ct mark @current ct original ip saddr @allowed accept",
        "ct original ip saddr vmap @rulings",
        "ct original ip saddr . ct original ip daddr vmap @names",
        "ct state established ct original ip saddr . ct original ip daddr vmap @held",
        "goto refuse",
    ),
    "permit": (
        "",
        "ct state new add @connections { ct original ip saddr ct count over 4096 } drop",
        "ct mark set ct original ip saddr map @generation",
        "ct original ip saddr @allowed accept",
    ),
    # What is recorded is bounded for each sandbox by a rate; the answer makes callers fail at once.
    "refuse": (
        "",
        "iifname @refused_by jump record",
        "meta l4proto tcp reject with tcp reset",
        f'iifname != "{UPLINK}" reject with icmp admin-prohibited',
        "drop",
    ),
    "record": (
        "",
        "update @recording { ip saddr limit rate 1/second burst 128 packets } "
        "update @refused { ip saddr . ip daddr . meta l4proto . th dport }",
    ),
    "postrouting": (
        "type nat hook postrouting priority 100; policy accept;",
        f'oifname "{UPLINK}" masquerade',
    ),
}


def router(addresses: Range, never: Iterable[Network4]) -> str:
    """All that is not of a sandbox; said again it changes nothing but what differs."""
    lines = [_OBJECTS]
    for chain, (hook, *_) in CHAINS.items():
        lines.append(f"add chain {TABLE} {chain} {{ {hook} }}" if hook else add_chain(chain))
    for chain, (_, *rules) in CHAINS.items():
        lines.append(f"flush chain {TABLE} {chain}")
        lines += [
            f"add rule {TABLE} {chain} {rule.replace('RESOLVER', str(addresses.resolver))}"
            for rule in rules
        ]
    return "\n".join([*lines, *set_never(never)])


def set_never(networks: Iterable[Network4]) -> list[str]:
    """Exactly these are refused to all."""
    return [
        f"flush set {TABLE} never",
        f"add element {TABLE} never {{ {', '.join(sorted(map(str, set(networks))))} }}",
    ]


def node(table: str, link: str, router_address: Address) -> str:
    """What the node itself has: the way of the router's packets out and of the answers back.

    The router reaches no address of the node, not even one that the node would hand on to a
    container (DNAT comes after), and nobody begins a connection to it. `forwarded` names the
    interfaces that forward only because we switched it on: they forward for the routers of this
    node and nobody else.
    """
    return f"""
add table inet {table}
add set inet {table} forwarded {{ type ifname; }}
add chain inet {table} prerouting {{ type filter hook prerouting priority -310; policy accept; }}
add chain inet {table} input {{ type filter hook input priority -10; policy accept; }}
add chain inet {table} forward {{ type filter hook forward priority -10; policy accept; }}
add chain inet {table} postrouting {{ type nat hook postrouting priority 100; policy accept; }}
flush chain inet {table} prerouting
flush chain inet {table} input
flush chain inet {table} forward
flush chain inet {table} postrouting
add rule inet {table} prerouting iifname "{link}" meta nfproto != ipv4 drop
add rule inet {table} prerouting iifname "{link}" ip saddr != {router_address} drop
add rule inet {table} prerouting iifname "{link}" fib daddr type != unicast drop
add rule inet {table} input iifname "{link}" drop
add rule inet {table} forward oifname "{link}" ct direction original drop
add rule inet {table} forward meta nfproto ipv4 iifname @forwarded oifname != "dsec*" drop
add rule inet {table} postrouting iifname "{link}" masquerade
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A sandbox as the filter knows it: its interface in the router, and its address."""

    interface: str
    address: Address


def admit(member: Member, generation: int, ruling: str) -> list[str]:
    """Lets a sandbox send, under the policy whose chain is `ruling`."""
    return [
        *set_ruling(member, generation, ruling),
        add("allowed", f"{member.address}"),
        add("refused_by", f'"{member.interface}"'),
        add("members", f'"{member.interface}" . {member.address}'),
    ]


def set_ruling(member: Member, generation: int, ruling: str) -> list[str]:
    """The elements that say which policy holds, and which mark its connections carry."""
    return [
        add("current", f"{member.address} . {generation:#x}"),
        add("generation", f"{member.address} : {generation:#x}"),
        add("rulings", f"{member.address} : jump {ruling}"),
    ]


def unset_ruling(member: Member, generation: int, ruling: str) -> list[str]:
    """Takes away what `set_ruling` gave."""
    return [
        remove("current", f"{member.address} . {generation:#x}"),
        remove("generation", f"{member.address} : {generation:#x}"),
        remove("rulings", f"{member.address} : jump {ruling}"),
    ]


def expel(member: Member, generation: int, ruling: str) -> list[str]:
    """Takes away what `admit` gave."""
    return [
        remove("members", f'"{member.interface}" . {member.address}'),
        remove("allowed", f"{member.address}"),
        remove("refused_by", f'"{member.interface}"'),
        *unset_ruling(member, generation, ruling),
    ]


def grant(
    kind: str,
    member: Member,
    address: Address,
    chain: str,
    timeout_s: int,
    names: Iterable[str] = (),
) -> str:
    """An element of `names` or `held`; which names it was answered to is told by its comment.

    So the next process knows them. What the kernel has no room for is left out.
    """
    told = ""
    for name in names:
        longer = f"{told} {name}".lstrip()
        told = longer if len(longer) <= _COMMENT_BYTES else told
    comment = f' comment "{told}"' if told else ""
    element = f"{member.address} . {address} timeout {timeout_s}s{comment}"
    return add(kind, f"{element} : jump {chain}")


def ungrant(kind: str, member: Member, address: Address, chain: str) -> list[str]:
    """Takes an element of `names` or `held` away that may have expired.

    Removing what has expired would fail, so it is added first; that changes nothing if it is there.
    """
    return [
        add(kind, f"{member.address} . {address} timeout 60s : jump {chain}"),
        remove(kind, f"{member.address} . {address}"),
    ]


def ruling_chain(policy: Policy) -> str:
    """The name of a policy's chain."""
    return f"p_{policy.digest}"


def ports_chain(ports: PortSet) -> str:
    """The name of the chain of a decision."""
    return f"c_{hashlib.sha256(repr(ports).encode()).hexdigest()[:24]}"


def ruling(policy: Policy) -> list[str]:
    """Makes a policy's chain."""
    chain = ruling_chain(policy)
    lines = [add_chain(chain)]
    for rule in policy.networks:
        end = "goto permit" if rule.allow else "goto refuse"
        lines += [
            f"add rule {TABLE} {chain} ct original ip daddr {rule.network} {match} {end}"
            for match in _matches(rule.ports)
        ]
    return lines


def ports_ruling(ports: PortSet) -> list[str]:
    """Makes the chain of a decision."""
    chain = ports_chain(ports)
    rules = [f"add rule {TABLE} {chain} {match} goto permit" for match in _matches(ports)]
    return [add_chain(chain), *rules]


def add_chain(chain: str) -> str:
    """Makes a chain without a hook, empty if it is new."""
    return f"add chain {TABLE} {chain}"


def delete_chain(chain: str) -> str:
    """Removes a chain that nothing refers to."""
    return f"delete chain {TABLE} {chain}"


def add(kind: str, element: str) -> str:
    """Puts an element into a set or map."""
    return f"add element {TABLE} {kind} {{ {element} }}"


def remove(kind: str, element: str) -> str:
    """Takes an element out of a set or map."""
    return f"delete element {TABLE} {kind} {{ {element} }}"


def _matches(ports: PortSet) -> Iterator[str]:
    for protocol in PROTOCOLS:
        if ports.ranges(protocol):
            yield f"meta l4proto {protocol}{_ports(ports, protocol)}"


def _ports(ports: PortSet, protocol: Protocol) -> str:
    if ports.is_all(protocol):
        return ""
    words = [f"{a}" if a == b else f"{a}-{b}" for a, b in ports.ranges(protocol)]
    return f" ct original proto-dst {{ {', '.join(words)} }}"
