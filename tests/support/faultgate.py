"""A gate before any HTTP server: requests pass it untouched, but for those that a fault is set for.

Requests are counted from 1 in the order in which they come. It knows nothing of what they mean and
hands on the very bytes (also `Host` and signatures), so it stands before a store of any protocol.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

_PIECE: Final = 64 << 10
_STATUS: Final = {429: "Too Many Requests", 500: "Internal Server Error", 503: "Slow Down"}


@dataclass(frozen=True)
class Fault:
    """What happens to one request, or to its answer.

    `drop` hangs up instead of handing it on, `deaf` after it was handed on. `cut_request` and
    `cut_answer` hang up after half of the body, `flip_request` and `flip_answer` change its last
    byte. `status` answers that, with `retry_after` seconds. `no_range` hands on the request without
    its Range. Waiting is added to any of these, or stands alone.
    """

    drop: bool = False
    deaf: bool = False
    cut_request: bool = False
    cut_answer: bool = False
    flip_request: bool = False
    flip_answer: bool = False
    no_range: bool = False
    status: int = 0
    retry_after: str = ""
    wait_s: float = 0.0


@dataclass(frozen=True)
class Passed:
    """A request that has come: `POST /path`, and the bytes of both bodies as far as they went."""

    line: str
    sent_bytes: int
    received_bytes: int


Plan = Callable[[int, str], Fault | None]


def nothing(_number: int, _line: str) -> Fault | None:
    """All requests pass."""
    return None


def at(number: int, fault: Fault) -> Plan:
    """The fault for one request, counted from 1."""
    return lambda count, _line: fault if count == number else None


def whenever(text: str, fault: Fault, times: int = 1) -> Plan:
    """The fault for the first requests that have `text` in their line."""
    left, lock = [fault] * times, threading.Lock()

    def plan(_number: int, line: str) -> Fault | None:
        with lock:
            return left.pop() if text in line and left else None

    return plan


@dataclass
class FaultGate:
    """A running gate; `plan` says what happens, `bytes_per_s` slows all bodies down together."""

    address: str = ""
    plan: Plan = nothing
    bytes_per_s: float = 0.0
    passed: list[Passed] = field(default_factory=list)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _free_at: float = 0.0

    def reset(self, plan: Plan = nothing) -> None:
        """Count anew."""
        with self._lock:
            self.plan, self._count = plan, 0
            self.passed.clear()

    @property
    def requests(self) -> int:
        """How many have come."""
        return self._count

    def fault(self, line: str) -> Fault:
        """What happens to the next request."""
        with self._lock:
            self._count += 1
            return self.plan(self._count, line) or Fault()

    def carry(self, amount_bytes: int) -> None:
        """Wait until so many bytes may have passed."""
        if not self.bytes_per_s:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + amount_bytes / self.bytes_per_s
            wait_s = self._free_at - now
        time.sleep(wait_s)


@contextlib.contextmanager
def before(upstream: str, tls: ssl.SSLContext | None = None) -> Iterator[FaultGate]:
    """A gate before the server at `host:port` until the context ends; with `tls` it speaks that."""
    gate = FaultGate()
    host, _, port = upstream.rpartition(":")
    clients: set[socket.socket] = set()
    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    gate.address = f"127.0.0.1:{listener.getsockname()[1]}"

    def serve(client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, _HangUpError):
                wrapped = tls.wrap_socket(client, server_side=True) if tls else client
                with wrapped, socket.create_connection((host, int(port))) as server:
                    _Line(gate, wrapped, server).run()
        finally:
            client.close()
            clients.discard(client)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                clients.add(client)
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield gate
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for client in list(clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)


class _HangUpError(Exception):
    """The connection ends here."""


class _Line:
    """One connection of a client, with one to the server."""

    def __init__(self, gate: FaultGate, client: socket.socket, server: socket.socket) -> None:
        self._gate = gate
        self._from_client, self._to_client = client.makefile("rb"), client.makefile("wb")
        self._from_server, self._to_server = server.makefile("rb"), server.makefile("wb")

    def run(self) -> None:
        """Until either side hangs up."""
        try:
            while head := _head(self._from_client):
                self._one(head)
        finally:
            for file in (self._from_client, self._from_server, self._to_client, self._to_server):
                with contextlib.suppress(OSError):
                    file.close()

    def _one(self, head: list[bytes]) -> None:
        line = head[0].decode("latin-1").rpartition(" ")[0]
        fault = self._gate.fault(line)
        time.sleep(fault.wait_s)
        if fault.drop:
            raise _HangUpError
        if _value(head, b"expect") and not fault.status:
            self._to_client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._to_client.flush()
        if fault.status:
            self._refuse(fault)
            raise _HangUpError
        skipped = (b"expect", b"range") if fault.no_range else (b"expect",)
        kept = [each for each in head if each.lower().partition(b":")[0] not in skipped]
        sent = self._pass(kept, self._from_client, self._to_server, "request", fault)
        if fault.deaf:
            _head(self._from_server)
            raise _HangUpError
        answer = _head(self._from_server)
        bodiless = line.startswith("HEAD") or answer[0].split()[1] in (b"204", b"304")
        received = self._pass(
            answer, self._from_server, self._to_client, "" if bodiless else "answer", fault
        )
        self._gate.passed.append(Passed(line, sent, received))

    def _refuse(self, fault: Fault) -> None:
        extra = f"Retry-After: {fault.retry_after}\r\n" if fault.retry_after else ""
        status = f"HTTP/1.1 {fault.status} {_STATUS.get(fault.status, 'Refused')}\r\n"
        self._to_client.write(
            f"{status}{extra}Connection: close\r\nContent-Length: 0\r\n\r\n".encode()
        )
        self._to_client.flush()

    def _pass(
        self, head: list[bytes], source: BinaryIO, target: BinaryIO, what: str, fault: Fault
    ) -> int:
        """Hand on head and body; how many bytes of the body there were."""
        target.write(b"\r\n".join(head) + b"\r\n\r\n")
        chunked = b"chunked" in _value(head, b"transfer-encoding").lower()
        if not what:
            length = 0
        elif chunked:
            length = -1
        else:
            length = int(_value(head, b"content-length") or 0)
        cut = getattr(fault, f"cut_{what}", False)
        flip = getattr(fault, f"flip_{what}", False)
        if length < 0:
            return self._pass_chunks(source, target, cut=cut, flip=flip)
        end = length // 2 if cut else length
        done = 0
        while done < end:
            piece = source.read(min(_PIECE, end - done))
            if not piece:
                raise _HangUpError
            done += len(piece)
            self._gate.carry(len(piece))
            if flip and done == length:
                piece = piece[:-1] + bytes([piece[-1] ^ 1])
            target.write(piece)
        target.flush()
        if cut and length:
            raise _HangUpError
        return done

    def _pass_chunks(self, source: BinaryIO, target: BinaryIO, *, cut: bool, flip: bool) -> int:
        done = 0
        while True:
            line = source.readline()
            size = int(line.partition(b";")[0], 16)
            data = source.read(size + 2)
            if cut:
                target.write(line + data[: size // 2])
                target.flush()
                raise _HangUpError
            if flip and size:
                data = bytes([data[0] ^ 1]) + data[1:]
            target.write(line + data)
            self._gate.carry(size)
            done += size
            if not size:
                target.flush()
                return done


def _head(source: BinaryIO) -> list[bytes]:
    """The first line and the headers; empty when the other side has hung up."""
    lines: list[bytes] = []
    while (line := source.readline()) not in (b"\r\n", b""):
        lines.append(line.rstrip(b"\r\n"))
    return lines


def _value(head: list[bytes], name: bytes) -> bytes:
    for line in head[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return b""
