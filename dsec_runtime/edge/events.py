"""What each sandbox was asked and did: a bounded log a sandbox, which listeners can follow.

Records are appended to `FOLDER/ID.jsonl`, a JSON object (`messages.Event`) a line; when a file has
grown to half of the bound it becomes `ID.old.jsonl`, in place of the one before. Lines are written
in batches by `flush`, so a killed edge loses the last second of them at most; those of `add` with
`at_once` are not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_runtime.messages import Event

LOG_BYTES: Final = 1 << 20
_QUEUE: Final = 1024  # a listener that is so far behind misses what comes
_LONGEST: Final = 4096  # of a line: a command may have megabytes of arguments

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Event).decode


class Events:
    """The logs below `folder`, which exists. All but `write` belong to one thread."""

    def __init__(self, folder: Path, log_bytes: int = LOG_BYTES) -> None:
        self.folder = folder
        self._half = log_bytes // 2
        self._pending: dict[str, list[bytes]] = defaultdict(list)
        self._taken: dict[str, list[bytes]] = {}  # to be written, and older than what is pending
        self._files = threading.Lock()  # and what is taken: each line is in one of the two
        self._listeners: dict[str, set[asyncio.Queue[Event]]] = defaultdict(set)

    def add(self, event: Event, *, at_once: bool = False) -> None:
        """Record `event`, and tell the listeners to its sandbox and to all."""
        self._pending[event.sandbox].append(_line(event))
        if at_once:
            lines = self._pending.pop(event.sandbox)
            with self._files:
                self._append(event.sandbox, [*self._taken.pop(event.sandbox, ()), *lines])
        for topic in (event.sandbox, ""):
            for queue in self._listeners.get(topic, ()):
                with contextlib.suppress(asyncio.QueueFull):
                    queue.put_nowait(event)

    def flush(self) -> None:
        """Write what has come since."""
        self.take()
        self.write()

    def take(self) -> None:
        """Set what has come since aside for `write`."""
        pending, self._pending = self._pending, defaultdict(list)
        with self._files:
            for sandbox, lines in pending.items():
                self._taken.setdefault(sandbox, []).extend(lines)

    def write(self) -> None:
        """Write what was taken; may be called from another thread."""
        while True:
            with self._files:
                sandbox = next(iter(self._taken), None)
                if sandbox is None:
                    return
                try:
                    self._append(sandbox, self._taken.pop(sandbox))
                except OSError:
                    self._taken.clear()  # a full disk does not fill our memory
                    raise

    def kept(self, sandbox: str) -> Iterator[Event]:
        """What is kept of the log of a sandbox, the oldest first."""
        paths = (self._old(sandbox), self._log(sandbox))
        with self._files:
            lines = [line for path in paths for line in _lines(path)]
            lines += self._taken.get(sandbox, ())
        for line in [*lines, *self._pending.get(sandbox, ())]:
            with contextlib.suppress(msgspec.DecodeError):  # cut off by a kill or a full disk
                yield _decode(line)

    @contextlib.contextmanager
    def listening(self, sandbox: str | None = None) -> Iterator[asyncio.Queue[Event]]:
        """A queue of what comes from now on, of one sandbox or of all."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_QUEUE)
        listeners = self._listeners[sandbox or ""]
        listeners.add(queue)
        try:
            yield queue
        finally:
            listeners.discard(queue)

    def forget(self, sandbox: str) -> None:
        """Remove the log of a sandbox."""
        self._pending.pop(sandbox, None)
        self._listeners.pop(sandbox, None)
        with self._files:
            self._taken.pop(sandbox, None)
            for path in (self._old(sandbox), self._log(sandbox)):
                Path(path).unlink(missing_ok=True)

    def _append(self, sandbox: str, lines: list[bytes]) -> None:
        path = self._log(sandbox)
        # Done on the loop, at each change of a sandbox; Python's files take four times as long.
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(log, b"".join(lines))
            full = os.lseek(log, 0, os.SEEK_CUR) >= self._half
        finally:
            os.close(log)
        if full:
            os.rename(path, self._old(sandbox))  # noqa: PTH104

    def _log(self, sandbox: str) -> str:
        return f"{self.folder}/{sandbox}.jsonl"

    def _old(self, sandbox: str) -> str:
        return f"{self.folder}/{sandbox}.old.jsonl"


def _line(event: Event) -> bytes:
    line = _encode(event)
    if len(line) > _LONGEST:
        short = {name: _cut(value) for name, value in event.detail.items()}
        line = _encode(msgspec.structs.replace(event, detail=short))
    return line + b"\n"


def _cut(value: str | float | bool | None) -> str | float | bool | None:
    limit = _LONGEST // 8
    return value[:limit] + "..." if isinstance(value, str) and len(value) > limit else value


def _lines(path: str) -> list[bytes]:
    try:
        return Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
