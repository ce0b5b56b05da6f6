"""What comes of a command's two streams: where each stands, and its end."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dsec_runtime import wire
from dsec_runtime.sdk.transport import problem
from dsec_runtime.spec import ExecEnd, Problem

STDOUT: Final = "stdout"
STDERR: Final = "stderr"
_NAMES: Final = {wire.Kind.STDOUT: STDOUT, wire.Kind.STDERR: STDERR}
_end = msgspec.json.Decoder(ExecEnd)
_problem = msgspec.json.Decoder(Problem)


class Output(NamedTuple):
    """A piece of `stream` (stdout or stderr) that begins at `offset` in all that was written.

    An offset beyond the end of the piece before tells of a gap: bytes that were not kept.
    """

    stream: str
    offset: int
    data: bytes


class Position:
    """Takes frames from one connection after another, and gives each byte once."""

    def __init__(self, stdout: int = 0, stderr: int = 0) -> None:
        self.next = {STDOUT: stdout, STDERR: stderr}
        self.end: ExecEnd | None = None

    def take(self, frame: wire.Frame) -> Output | None:
        """What is new in a frame; its end is kept in `end`. Raises the error of a PROBLEM."""
        if frame.kind == wire.Kind.END:
            self.end = _end.decode(frame.payload)
            return None
        if frame.kind == wire.Kind.PROBLEM:
            raise problem(_problem.decode(frame.payload))
        name = _NAMES.get(wire.Kind(frame.kind))
        if name is None:
            return None
        known = max(0, self.next[name] - frame.offset)
        if known >= len(frame.payload):
            return None
        offset = frame.offset + known
        self.next[name] = frame.offset + len(frame.payload)
        return Output(name, offset, bytes(frame.payload[known:] if known else frame.payload))

    @property
    def query(self) -> dict[str, int]:
        """The offsets from which to go on."""
        return {STDOUT: self.next[STDOUT], STDERR: self.next[STDERR]}
