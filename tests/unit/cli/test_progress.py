"""Progress in each of its forms, with a clock of the test's own."""

import contextlib
import json
import os
import pty
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dsec_layers.builder.events import StepCached, StepDone, StepOutput, StepStarted
from dsec_layers.cli.output import Output
from dsec_layers.cli.progress import Meter, meter
from dsec_layers.cli.steps import StepPrinter
from dsec_layers.registry.transfer import Moved, Planned

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("dsec_layers.cli.progress.time.monotonic", lambda: now[0])
    return now


def test_lines_come_at_most_every_two_seconds(clock: list[float], capsys: Captured) -> None:
    with meter(Output(progress="plain"), "push x") as shown:
        shown.transfer(Planned(3, 5_000_000, 1, 1_000_000))
        for _ in range(4):
            clock[0] += 1.5
            shown.transfer(Moved(1_000_000))
    assert capsys.readouterr().err.splitlines() == [
        "push x: 3.0 MB of 5.0 MB",
        "push x: 5.0 MB of 5.0 MB",
    ]


def test_json_lines(clock: list[float], capsys: Captured) -> None:
    with meter(Output(progress="json"), "import x") as shown:
        clock[0] += 3
        shown.add(7)
        shown.add(2)
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert events == [
        {"event": "progress", "title": "import x", "done": done, "total": None} for done in (7, 9)
    ]


@pytest.mark.parametrize("form", ["auto", "quiet"])
def test_no_progress_without_a_terminal(form: str, clock: list[float], capsys: Captured) -> None:
    with meter(Output(progress=form), "x") as shown:
        clock[0] += 10
        shown.add(7)
    assert capsys.readouterr() == ("", "")
    assert shown.done_bytes == 7


def test_many_threads_add() -> None:
    seen: list[int] = []
    shown = Meter(lambda done, _: seen.append(done))
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(500):
            shown.add(1)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for _ in range(4)]:
            future.result()
    assert shown.done_bytes == 2000
    assert seen == list(range(1, 2001))


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It appears with the first byte, so that it does not stand below the steps of a build."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        output = Output()
        assert output.live
        assert not Output(as_json=True).live
        os.set_blocking(leader, False)
        with meter(output, "pack [x]") as shown:
            with pytest.raises(BlockingIOError):
                os.read(leader, 10_000)
            shown.add(5000)
        said = _waiting(leader).decode()
    os.close(leader)
    assert "pack [x]" in said
    assert "5.0 kB" in said
    assert "/?" not in said, "no total, no word of it"
    assert said.endswith("\x1b[2K") or "\x1b[?25h" in said, "the bar is wiped, the cursor is back"


def _waiting(fd: int) -> bytes:
    """All that can be read without blocking."""
    parts = []
    with contextlib.suppress(BlockingIOError):
        while part := os.read(fd, 10_000):
            parts.append(part)
    return b"".join(parts)


def test_steps_as_text(capsys: Captured) -> None:
    show = StepPrinter(Output()).show
    show(StepStarted(1, 2, "RUN make", "Layerfile:3"))
    show(StepOutput(1, b"one\ntw"))
    show(StepOutput(1, b"o\r\nthree \xff\n 5%\r50%\r100%\ndo"))
    show(StepOutput(1, b"ing\rdone"))
    show(StepDone(1, 1.25))
    show(StepStarted(2, 2, "COPY a b", "Layerfile:4"))
    show(StepCached(2))
    assert capsys.readouterr().err.splitlines() == [
        "[1/2] RUN make",
        "  one",
        "  two",
        "  three �",
        "  100%",
        "  done",
        "  done in 1.2 s",
        "[2/2] COPY a b",
        "  cached",
    ]


def test_steps_as_json(capsys: Captured) -> None:
    show = StepPrinter(Output(progress="json")).show
    show(StepStarted(1, 1, "RUN make", "Layerfile:3"))
    show(StepOutput(1, b"out\n"))
    show(StepDone(1, 0.5))
    show(StepCached(1))
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["event"] for event in events] == ["step", "output", "done", "cached"]
    assert events[0]["where"] == "Layerfile:3"


def test_steps_in_silence(capsys: Captured) -> None:
    StepPrinter(Output(progress="quiet")).show(StepStarted(1, 1, "RUN make", "Layerfile:3"))
    assert capsys.readouterr() == ("", "")
