"""Attending to a runtime process: its output, a terminal, being interrupted, its certain end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import process, runtime

Sink = Callable[[bytes], None]
TAIL_BYTES = 4096
_READ_BYTES = 1 << 16
_CANCEL_POLL_S = 0.1


def attend(
    words: Sequence[str],
    *,
    tty: bool,
    inherit_input: bool,
    on_output: Sink | None,
    on_error: Sink | None,
    cancelled: threading.Event | None,
) -> tuple[int, bytes]:
    """Run a runtime's command and return its status and the last bytes of its output."""
    tail = _Tail()
    with _terminal(tty), contextlib.ExitStack() as stack:
        child = stack.enter_context(
            process.start(
                words,
                stdin=0 if inherit_input else None,
                stdout=subprocess.PIPE if on_output else None,
                stderr=_error_target(on_output, on_error),
                own_session=not tty,
            )
        )
        # Undone first, so that no process of the container is left when this returns.
        stack.callback(runtime.end, child)
        sinks: dict[IO[bytes], Sink] = {}
        for stream, sink in ((child.stdout, on_output), (child.stderr, on_error)):
            if stream is not None and sink is not None:
                sinks[stream] = tail.before(sink)
        with _size_followed(child) if tty else contextlib.nullcontext():
            _pump(child, sinks, cancelled)
            status = child.wait()
    return (status if status >= 0 else 128 - status), tail.content


class _Tail:
    def __init__(self) -> None:
        self.content = b""

    def before(self, sink: Sink) -> Sink:
        def remember(data: bytes) -> None:
            self.content = (self.content + data)[-TAIL_BYTES:]
            sink(data)

        return remember


def _error_target(on_output: Sink | None, on_error: Sink | None) -> int | None:
    if on_error:
        return subprocess.PIPE
    return subprocess.STDOUT if on_output else None


def _pump(
    child: subprocess.Popen[bytes],
    sinks: Mapping[IO[bytes], Sink],
    cancelled: threading.Event | None,
) -> None:
    """Hand output on until the child has ended and what it wrote is read."""
    ended = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            for stream in sinks:
                selector.register(stream, selectors.EVENT_READ)
            patience = None if cancelled is None else _CANCEL_POLL_S
            while not _step(selector, ended, sinks, patience):
                if cancelled is not None and cancelled.is_set():
                    raise InterruptedError("the container was cancelled")
    finally:
        os.close(ended)
    for stream, sink in sinks.items():
        _drain(stream, sink)


def _step(
    selector: selectors.BaseSelector,
    ended: int,
    sinks: Mapping[IO[bytes], Sink],
    patience: float | None,
) -> bool:
    """Wait for something and handle it; True when the child has ended."""
    over = False
    for key, _ in selector.select(patience):
        if key.fileobj == ended:
            over = True
            continue
        stream = next(stream for stream in sinks if stream is key.fileobj)
        if data := os.read(key.fd, _READ_BYTES):
            sinks[stream](data)
        else:
            selector.unregister(stream)
    return over


def _drain(stream: IO[bytes], sink: Sink) -> None:
    """Read what is left in the pipe of an ended child, at most what a pipe can hold.

    Its writers are dead, so this is everything; were one alive elsewhere, it could not hold us.
    """
    os.set_blocking(stream.fileno(), False)
    left = fcntl.fcntl(stream, fcntl.F_GETPIPE_SZ)
    with contextlib.suppress(BlockingIOError):
        while left > 0 and (data := os.read(stream.fileno(), left)):
            left -= len(data)
            sink(data)


@contextlib.contextmanager
def _terminal(wanted: bool) -> Iterator[None]:
    """Give our terminal back as it was: a killed runtime leaves it raw."""
    if not wanted:
        yield
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInputError("there is no terminal to give to the command", hint="leave -t out")
    before = termios.tcgetattr(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _size_followed(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let the command's terminal change its size with ours, which not every runtime sees to."""
    if threading.current_thread() is not threading.main_thread():  # none else gets signals
        yield
        return

    def resize(*_: object) -> None:
        with contextlib.suppress(OSError, termios.error):
            size = termios.tcgetwinsize(0)
            for pid in runtime.first_of_container(child):
                fd = os.open(f"/proc/{pid}/fd/0", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
                try:
                    termios.tcsetwinsize(fd, size)
                finally:
                    os.close(fd)

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
