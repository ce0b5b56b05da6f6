from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import dns.edns
import dns.flags
import dns.message
import dns.query
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.network import resolver
from dsec_runtime.network.addresses import Address
from dsec_runtime.network.resolver import Resolver
from tests.support.profiles import fewer

HERE = "127.0.0.1"


@dataclass
class Book:
    """Allows names below `good.example`, and answers them itself."""

    opened: list[tuple[str, str, list[Address], int]] = field(default_factory=list)
    noted: list[tuple[str, str]] = field(default_factory=list)
    known: dict[str, tuple[Address, ...]] = field(default_factory=dict)
    wait: threading.Event | None = None

    def refusal(self, source: str, name: str) -> str | None:
        if self.wait is not None:
            self.wait.wait()
        return None if name.endswith("good.example") else "no rule allows it"

    def hosts(self, name: str) -> tuple[Address, ...]:
        return self.known.get(name, ())

    def open(
        self, source: str, name: str, addresses: Iterable[Address], ttl_s: int
    ) -> list[Address]:
        self.opened.append((source, name, list(addresses), ttl_s))
        return [it for it in addresses if it != Address("192.0.2.66")]

    def note_refused(self, source: str, name: str, reason: str) -> None:
        self.noted.append((name, reason))


@dataclass
class Served:
    book: Book
    udp_port: int
    tcp_port: int

    def ask(self, name: str, rdtype: str = "A", **options: bool) -> dns.message.Message:
        query = dns.message.make_query(name, rdtype, use_edns=options.get("edns", True))
        return dns.query.udp(query, HERE, port=self.udp_port, timeout=30)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    book = Book(known={"good.example": (Address("192.0.2.1"), Address("192.0.2.66"))})
    book.known["bad.good.example"] = (Address("192.0.2.66"),)
    book.known["many.good.example"] = tuple(Address("192.0.2.1") + it for it in range(60))
    sockets = resolver.listen(Address(HERE), 0)
    ports = [it.getsockname()[1] for it in sockets]
    found = Resolver(book, list, sockets, lambda: None)
    yield Served(book, *ports)
    found.close()


def test_what_may_be_told_is_told(served: Served) -> None:
    answer = served.ask("GOOD.example")

    assert [record.to_text() for record in answer.answer[0]] == ["192.0.2.1"]
    assert answer.question[0].name.to_text() == "GOOD.example."
    assert answer.flags & dns.flags.RA
    source, name, addresses, _ = served.book.opened[-1]
    assert (source, name) == (HERE, "good.example")
    assert len(addresses) == 2


def test_a_refusal_says_why(served: Served) -> None:
    answer = served.ask("other.example")

    assert answer.rcode() == dns.rcode.NXDOMAIN
    (option,) = answer.options
    assert isinstance(option, dns.edns.EDEOption)
    assert option.text == "no rule allows it"
    assert served.book.noted[-1] == ("other.example", "no rule allows it")
    assert not served.ask("other.example", edns=False).options


def test_a_name_with_forbidden_addresses_only_does_not_exist(served: Served) -> None:
    assert served.ask("bad.good.example").rcode() == dns.rcode.NXDOMAIN


def test_without_an_upstream_there_is_a_failure(served: Served) -> None:
    assert served.ask("unknown.good.example").rcode() == dns.rcode.SERVFAIL


@pytest.mark.parametrize("name", ["a b.good.example", "\\000.good.example", "."])
def test_what_is_no_host_name_does_not_exist(served: Served, name: str) -> None:
    assert served.ask(name).rcode() == dns.rcode.NXDOMAIN


def test_an_answer_that_is_too_long_is_cut_and_asked_for_again(served: Served) -> None:
    assert served.ask("many.good.example", edns=False).flags & dns.flags.TC

    query = dns.message.make_query("many.good.example", "A")
    answer = dns.query.tcp(query, HERE, port=served.tcp_port, timeout=30)
    assert len(answer.answer[0]) == 60


def test_a_sandbox_has_a_share_of_the_questions(served: Served) -> None:
    served.book.wait = threading.Event()
    query = dns.message.make_query("other.example", "A").to_wire()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(5)
        datagrams.connect((HERE, served.udp_port))
        for _ in range(resolver._IN_FLIGHT + 8):
            datagrams.send(query)
        served.book.wait.set()
        answers = [datagrams.recv(512) for _ in range(resolver._IN_FLIGHT)]
    served.book.wait = None

    assert len(answers) == resolver._IN_FLIGHT


questions = st.builds(
    lambda name, kind: dns.message.make_query(name, kind).to_wire(),
    st.sampled_from(["good.example", "other.example"]),
    st.sampled_from(["A", "AAAA", "TXT"]),
)
damaged = st.builds(
    lambda wire, at, byte: wire[: at % len(wire)] + bytes([byte]) + wire[at % len(wire) + 1 :],
    questions,
    st.integers(0, 1000),
    st.integers(0, 255),
)


@fewer
@given(st.lists(damaged | st.binary(max_size=80), min_size=1, max_size=10))
def test_no_datagram_ends_the_resolver(served: Served, datagrams: list[bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, (HERE, served.udp_port))
    framed = b"".join(struct.pack("!H", len(it)) + it for it in datagrams)
    with socket.create_connection((HERE, served.tcp_port)) as stream:
        stream.sendall(framed)

    assert served.ask("good.example").answer
