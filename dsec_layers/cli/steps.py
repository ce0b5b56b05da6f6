"""The steps of a build on standard error, as lines of text or as JSON events.

Several steps run at once, so every line of text says to which it belongs. On a terminal those that
run stand below the lines, with the time they have taken.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dsec_layers.api.rows import LayerRow
from dsec_layers.builder.events import (
    BuildEvent,
    Note,
    StepCached,
    StepDone,
    StepOutput,
    StepStarted,
    Warned,
)
from dsec_layers.builder.lints.subject import Finding
from dsec_layers.cli.advice import as_lines
from dsec_layers.cli.output import Output, printable, size

if TYPE_CHECKING:
    from dsec_layers.cli.runninglines import RunningLines


@contextlib.contextmanager
def steps_shown(output: Output) -> Iterator[StepPrinter]:
    """Show the steps of a build in the form that `--progress` asks for, until the block ends."""
    running = _running_lines() if output.live else None
    try:
        yield StepPrinter(output, running)
    finally:
        if running is not None:
            running.stop()


def _running_lines() -> RunningLines:
    from dsec_layers.cli.runninglines import RunningLines  # rich takes its time to load

    return RunningLines()


class StepPrinter:
    """Prints build events; counts steps, and those that were cached."""

    def __init__(self, output: Output, running: RunningLines | None = None) -> None:
        self._output = output
        self._running = running
        self._started = time.monotonic()
        self._total = 0
        self._cached = 0
        self._found: dict[Finding, None] = {}
        self._partial: dict[int, bytes] = {}  # the last, unfinished line of a step's output

    def show(self, event: BuildEvent) -> None:
        """Print one event."""
        self._count(event)
        if self._output.progress == "json":
            self._output.event(_as_json(event))
        elif self._output.progress != "quiet":
            self._print(event)

    def finish(self, row: LayerRow) -> None:
        """Print what the whole build took and gave."""
        seconds = time.monotonic() - self._started
        if self._output.progress == "json":
            self._output.event(
                {
                    "event": "built",
                    "steps": self._total,
                    "cached": self._cached,
                    "seconds": round(seconds, 3),
                    "reference": row.reference,
                    "digest": row.digest,
                    "content_bytes": row.content_bytes,
                    "stored_bytes": row.stored_bytes,
                }
            )
        else:
            steps = f"{self._total} step{'s' * (self._total != 1)}, {self._cached} cached"
            self._output.note(f"{steps}, {size(row.content_bytes)} in {seconds:.1f} s")
            if self._found:
                self._output.note(as_lines(list(self._found)))

    def _count(self, event: BuildEvent) -> None:
        if isinstance(event, StepStarted):
            self._total = event.total
        elif isinstance(event, StepCached):
            self._cached += 1

    def _print(self, event: BuildEvent) -> None:
        match event:
            case StepStarted():
                title = printable(event.title)
                self._line(f"{self._label(event.number)} {title}")
                if self._running:
                    self._running.begin(event.number, f"{self._label(event.number)} {title}")
            case StepCached():
                self._end(event.number, f"cached in {event.store}" if event.store else "cached")
            case StepOutput():
                text = self._partial.get(event.number, b"") + event.data
                *lines, self._partial[event.number] = text.split(b"\n")
                for line in lines:
                    self._line(f"{event.number}/{self._total} | {_shown(line)}")
            case StepDone():
                if rest := self._partial.pop(event.number, b""):
                    self._line(f"{event.number}/{self._total} | {_shown(rest)}")
                self._end(event.number, f"done in {event.seconds:.1f} s")
            case Note():
                self._line(f"note: {printable(event.message)}")
            case Warned():
                self._found[event.finding] = None  # shown at the end, where it is seen

    def _label(self, number: int) -> str:
        return f"step {number}/{self._total}"

    def _end(self, number: int, how: str) -> None:
        if self._running:
            self._running.end(number)
        self._line(f"{self._label(number)} {how}")

    def _line(self, text: str) -> None:
        if self._running:
            self._running.above(text)
        else:
            self._output.note(text)


def _shown(line: bytes) -> str:
    """What a terminal would show in the end of a line that was written over and over."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]


def _as_json(event: BuildEvent) -> dict[str, object]:
    match event:
        case StepStarted():
            return {
                "event": "step",
                "number": event.number,
                "total": event.total,
                "title": event.title,
                "where": event.where,
            }
        case StepCached():
            return {"event": "cached", "number": event.number, "store": event.store}
        case StepOutput():
            text = event.data.decode(errors="replace")
            return {"event": "output", "number": event.number, "text": text}
        case StepDone():
            return {"event": "done", "number": event.number, "seconds": round(event.seconds, 3)}
        case Note():
            return {"event": "note", "message": event.message}
        case Warned(found):
            return {
                "event": "warning",
                "rule": found.rule,
                "message": found.message,
                "where": found.where,
                "line": found.line,
            }
