"""The steps of a build on standard error: a line each, with the output of its command below."""

from __future__ import annotations

from dsec_layers.builder.events import (
    BuildEvent,
    StepCached,
    StepDone,
    StepOutput,
    StepStarted,
)
from dsec_layers.cli.output import Output


class StepPrinter:
    """Prints build events in the form that `--progress` asks for."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._partial = b""

    def show(self, event: BuildEvent) -> None:
        """Print one event."""
        if self._output.progress == "json":
            self._output.event(_as_json(event))
        elif self._output.progress != "quiet":
            self._print(event)

    def _print(self, event: BuildEvent) -> None:
        match event:
            case StepStarted():
                self._output.note(f"[{event.number}/{event.total}] {event.title}")
            case StepCached():
                self._output.note("  cached")
            case StepOutput():
                *lines, self._partial = (self._partial + event.data).split(b"\n")
                for line in lines:
                    self._output.note("  " + _shown(line))
            case StepDone():
                if self._partial:
                    self._output.note("  " + _shown(self._partial))
                    self._partial = b""
                self._output.note(f"  done in {event.seconds:.1f} s")


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
            return {"event": "cached", "number": event.number}
        case StepOutput():
            text = event.data.decode(errors="replace")
            return {"event": "output", "number": event.number, "text": text}
        case StepDone():
            return {"event": "done", "number": event.number, "seconds": round(event.seconds, 3)}
