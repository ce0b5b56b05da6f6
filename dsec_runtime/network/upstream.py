"""Asking the node's own resolvers for the addresses of a name."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype

from dsec_runtime.network.addresses import Address

LONGEST_TTL_S: Final = 300
MOST_ADDRESSES: Final = 16
_TIMEOUT_S: Final = 3.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a resolver said: how it went (RFC 1035, RCODE), and addresses that hold for a time."""

    rcode: dns.rcode.Rcode
    addresses: tuple[Address, ...] = ()
    ttl_s: int = 0


_FAILED: Final = Found(dns.rcode.SERVFAIL)


def nameservers(resolv_conf: Path) -> list[str]:
    """The resolvers that a file names (resolv.conf(5))."""
    try:
        lines = resolv_conf.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]


async def ask(name: str, servers: list[str]) -> Found:
    """The addresses of `name` by the first of `servers` that answers; SERVFAIL if none does.

    The names between an alias and its addresses are left out, and the shortest of their times
    holds: the sandbox asked for one name, and its rules spoke of that one.
    """
    query = dns.message.make_query(name, dns.rdatatype.A, use_edns=False)
    for server in servers:
        try:
            response, _ = await dns.asyncquery.udp_with_fallback(query, server, timeout=_TIMEOUT_S)
            return _read(response)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            _log.warning("resolver %s did not answer: %s", server, error)
    return _FAILED


def _read(response: dns.message.Message) -> Found:
    rcode = response.rcode()
    if rcode != dns.rcode.NOERROR:
        return Found(rcode)
    if not isinstance(response, dns.message.QueryMessage):
        return _FAILED
    chain = response.resolve_chaining()
    if chain.answer is None:
        return Found(rcode)
    addresses = tuple(Address(record.to_text()) for record in chain.answer)[:MOST_ADDRESSES]
    return Found(rcode, addresses, min(chain.minimum_ttl, LONGEST_TTL_S))
