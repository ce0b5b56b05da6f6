from __future__ import annotations

from pathlib import Path

import dns.message
import dns.rcode

from dsec_runtime.network import upstream
from dsec_runtime.network.addresses import Address
from dsec_runtime.network.upstream import Found


def test_nameservers_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("# nameserver 1.1.1.1\nsearch example\nnameserver 192.0.2.1\n nameserver ::1\n")

    assert upstream.nameservers(path) == ["192.0.2.1", "::1"]
    assert upstream.nameservers(tmp_path / "none") == []


def message(*answers: str, rcode: str = "NOERROR") -> dns.message.Message:
    lines = ["id 1", f"rcode {rcode}", "flags QR", ";QUESTION", "a.example. IN A", ";ANSWER"]
    return dns.message.from_text("\n".join([*lines, *answers]) + "\n")


def test_aliases_are_followed_and_the_shortest_time_holds() -> None:
    found = upstream._read(
        message(
            "a.example. 30 IN CNAME b.example.",
            "b.example. 9 IN CNAME c.example.",
            "c.example. 60 IN A 192.0.2.1",
            "c.example. 60 IN A 192.0.2.2",
            "unasked.example. 60 IN A 192.0.2.3",
        )
    )

    assert found.ttl_s == 9
    assert set(found.addresses) == {Address("192.0.2.1"), Address("192.0.2.2")}


def test_a_long_time_is_cut() -> None:
    assert upstream._read(message("a.example. 86400 IN A 192.0.2.1")).ttl_s == 300


def test_a_name_without_addresses_has_none() -> None:
    assert upstream._read(message()) == Found(dns.rcode.NOERROR)
    assert upstream._read(message(rcode="NXDOMAIN")) == Found(dns.rcode.NXDOMAIN)
