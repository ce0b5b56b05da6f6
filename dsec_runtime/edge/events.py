"""What each sandbox was asked and did: a bounded log a sandbox, which listeners can follow.

Records are appended to `FOLDER/ID.jsonl`, a JSON object (`messages.Event`) a line; when a file has
grown to half of the bound it becomes `ID.old.jsonl`, in place of the one before. Lines are written
in batches by `flush`, so a killed edge loses the last second of them at most; those of `add` with
`at_once` are not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
    """The logs below `folder`, which exists."""

    def __init__(self, folder: Path, log_bytes: int = LOG_BYTES) -> None:
        self.folder = folder
        self._half = log_bytes // 2
        self._pending: dict[str, list[bytes]] = defaultdict(list)
        self._listeners: dict[str, set[asyncio.Queue[Event]]] = defaultdict(set)

    def add(self, event: Event, *, at_once: bool = False) -> None:
        """Record `event`, and tell the listeners to its sandbox and to all."""
        self._pending[event.sandbox].append(_line(event))
        if at_once:
            self._append(event.sandbox, b"".join(self._pending.pop(event.sandbox)))
        for topic in (event.sandbox, ""):
            for queue in self._listeners.get(topic, ()):
                with contextlib.suppress(asyncio.QueueFull):
                    queue.put_nowait(event)

    def flush(self) -> None:
        """Write what has come since."""
        self.write(self.take())

    def take(self) -> Mapping[str, list[bytes]]:
        """What has come since, for `write`."""
        pending, self._pending = self._pending, defaultdict(list)
        return pending

    def write(self, pending: Mapping[str, list[bytes]]) -> None:
        """Write what was taken; may be called from another thread."""
        for sandbox, lines in pending.items():
            self._append(sandbox, b"".join(lines))

    def kept(self, sandbox: str) -> Iterator[Event]:
        """What is kept of the log of a sandbox, the oldest first."""
        lines = [line for path in (self._old(sandbox), self._log(sandbox)) for line in _lines(path)]
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
        for path in (self._old(sandbox), self._log(sandbox)):
            path.unlink(missing_ok=True)

    def _append(self, sandbox: str, lines: bytes) -> None:
        path = self._log(sandbox)
        with path.open("ab") as log:
            log.write(lines)
            full = log.tell() >= self._half
        if full:
            with contextlib.suppress(FileNotFoundError):  # another thread did it just now
                path.rename(self._old(sandbox))

    def _log(self, sandbox: str) -> Path:
        return self.folder / f"{sandbox}.jsonl"

    def _old(self, sandbox: str) -> Path:
        return self.folder / f"{sandbox}.old.jsonl"


def _line(event: Event) -> bytes:
    line = _encode(event)
    if len(line) > _LONGEST:
        short = {name: _cut(value) for name, value in event.detail.items()}
        line = _encode(msgspec.structs.replace(event, detail=short))
    return line + b"\n"


def _cut(value: str | float | bool | None) -> str | float | bool | None:
    limit = _LONGEST // 8
    return value[:limit] + "..." if isinstance(value, str) and len(value) > limit else value


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
