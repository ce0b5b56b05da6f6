"""The resolver of the sandboxes: answers what their rules allow, and opens what it answers.

It listens inside the router, where nothing but sandboxes comes from, and asks the node's own
resolvers from the node. Only addresses are answered (RFC 1035, type A); for other types a name that
may be asked has no data, since sandboxes have no IPv6 and other records carry messages. A name that
may not be asked does not exist, with the reason beside it (RFC 8914, "Blocked").
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, Protocol, cast

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from dsec_runtime.network import upstream
from dsec_runtime.network.addresses import Address, normal_name
from dsec_runtime.network.upstream import Found

PORT: Final = 53
_HOST_TTL_S: Final = 60
_TCP_IDLE_S: Final = 10.0
_IN_FLIGHT: Final = 32  # questions of one sandbox
_PLAIN_SIZE: Final = 512  # of an answer in a datagram without EDNS

Sockets = tuple[socket.socket, socket.socket]  # of datagrams, and a listening one of streams


class Book(Protocol):
    """Who may ask what. Methods may block, and are called from threads of the resolver."""

    def refusal(self, source: str, name: str) -> str | None:
        """Why the sandbox with the address `source` may not ask for `name`; None: it may."""

    def hosts(self, name: str) -> tuple[Address, ...]:
        """The addresses that the operator gives `name`."""

    def open(
        self, source: str, name: str, addresses: Iterable[Address], ttl_s: int
    ) -> list[Address]:
        """Open those that may be reached, for `ttl_s` and a little; which they are."""

    def note_refused(self, source: str, name: str, reason: str) -> None:
        """Note that a question was refused."""


class Resolver:
    """A thread that answers until it is closed."""

    def __init__(
        self,
        book: Book,
        nameservers: Callable[[], list[str]],
        sockets: Sockets,
        enter_node: Callable[[], None],
    ) -> None:
        """`nameservers` is asked for each question; `enter_node` brings a thread to the node."""
        self._book, self._nameservers = book, nameservers
        self._asking: collections.Counter[str] = collections.Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(sockets, enter_node, ready), name="dsec-resolver", daemon=True
        )
        self._thread.start()
        ready.result()

    def close(self) -> None:
        """End; questions that are not answered yet stay without an answer."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def serve(self, data: bytes, source: str, send: Callable[[bytes], None]) -> None:
        """Answer the question of a datagram."""

        async def work() -> None:
            answer = await self._answer(data, source)
            if answer is not None:
                send(_datagram(answer))

        task = self._loop.create_task(work())
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)

    def _run(self, sockets: Sockets, enter_node: Callable[[], None], ready: Future[None]) -> None:
        try:
            enter_node()
            server = self._loop.run_until_complete(self._listen(sockets))
        except BaseException as error:  # goes on to whoever waits
            ready.set_exception(error)
            return
        ready.set_result(None)
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _listen(self, sockets: Sockets) -> asyncio.Server:
        datagrams, streams = sockets
        self._datagrams, _ = await self._loop.create_datagram_endpoint(
            lambda: _Datagrams(self), sock=datagrams
        )
        return await asyncio.start_server(self._stream, sock=streams)

    async def _end(self) -> None:
        self._datagrams.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = writer.get_extra_info("peername")[0]
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while True:
                async with asyncio.timeout(_TCP_IDLE_S):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    data = await reader.readexactly(length)
                answer = await self._answer(data, source)
                if answer is None:
                    break
                wire = answer.to_wire()
                writer.write(struct.pack("!H", len(wire)) + wire)
                await writer.drain()
        writer.close()

    async def _answer(self, data: bytes, source: str) -> dns.message.Message | None:
        """The answer to one question; None where none is due."""
        if self._asking[source] >= _IN_FLIGHT:
            return None
        self._asking[source] += 1
        try:
            query = dns.message.from_wire(data)
            return None if query.flags & dns.flags.QR else await self._judge(query, source)
        except (dns.exception.DNSException, ValueError):
            return None
        finally:
            self._asking[source] -= 1
            if not self._asking[source]:
                del self._asking[source]

    async def _judge(self, query: dns.message.Message, source: str) -> dns.message.Message:
        response = dns.message.make_response(query, recursion_available=True)
        if query.opcode() != dns.opcode.QUERY or len(query.question) != 1:
            response.set_rcode(dns.rcode.NOTIMP)
            return response
        question = query.question[0]
        try:
            name = normal_name(question.name.to_text())
        except ValueError:
            return self._refuse(response, source, "", "no host name")
        if question.rdclass != dns.rdataclass.IN:
            return self._refuse(response, source, name, "not of the Internet")
        reason = await asyncio.to_thread(self._book.refusal, source, name)
        if reason is not None:
            return self._refuse(response, source, name, reason)
        if question.rdtype != dns.rdatatype.A:
            return response
        return await self._resolve(response, source, name)

    async def _resolve(
        self, response: dns.message.Message, source: str, name: str
    ) -> dns.message.Message:
        """Put the addresses of `name` into `response`; they are open before they are told."""
        own = self._book.hosts(name)
        found = Found(dns.rcode.NOERROR, own, _HOST_TTL_S)
        if not own:
            found = await upstream.ask(name, self._nameservers())
        response.set_rcode(found.rcode)
        if not found.addresses:
            return response
        opened = await asyncio.to_thread(
            self._book.open, source, name, found.addresses, found.ttl_s
        )
        if not opened:
            return self._refuse(response, source, name, "its addresses are not allowed")
        response.answer.append(
            dns.rrset.from_text_list(
                response.question[0].name,
                found.ttl_s,
                dns.rdataclass.IN,
                dns.rdatatype.A,
                [str(it) for it in opened],
            )
        )
        return response

    def _refuse(
        self, response: dns.message.Message, source: str, name: str, reason: str
    ) -> dns.message.Message:
        self._book.note_refused(source, name, reason)
        response.set_rcode(dns.rcode.NXDOMAIN)
        if response.edns >= 0:
            text = dns.edns.EDEOption(dns.edns.EDECode.BLOCKED, reason)
            response.use_edns(response.edns, payload=response.payload, options=[text])
        return response


class _Datagrams(asyncio.DatagramProtocol):
    """Hands each datagram on, with the way back."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        transport = self._transport
        self._resolver.serve(data, addr[0], lambda answer: transport.sendto(answer, addr))


def _datagram(answer: dns.message.Message) -> bytes:
    """An answer as a datagram holds it: cut, with the flag that says so, where it is too long."""
    size = max(_PLAIN_SIZE, answer.request_payload)
    try:
        return answer.to_wire(max_size=size)
    except dns.exception.TooBig:
        answer.answer.clear()
        answer.flags |= dns.flags.TC
        return answer.to_wire(max_size=size)


def listen(address: Address, port: int = PORT) -> Sockets:
    """The sockets of a resolver, of the calling thread's network namespace. Raises OSError."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    streams = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        datagrams.setblocking(False)  # the name of the method says it
        datagrams.bind((str(address), port))
        streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        streams.bind((str(address), port))
        streams.listen(256)
    except OSError:
        datagrams.close()
        streams.close()
        raise
    return datagrams, streams
