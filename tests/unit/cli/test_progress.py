"""Progress in each of its forms, with a clock of the test's own."""

import contextlib
import json
import os
import pty
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dsec_layers.api.rows import LayerRow
from dsec_layers.builder.events import Note, StepCached, StepDone, StepOutput, StepStarted
from dsec_layers.cli.output import Output
from dsec_layers.cli.progress import Meter, meter
from dsec_layers.cli.steps import StepPrinter, steps_shown
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
        "step 1/2 RUN make",
        "1/2 | one",
        "1/2 | two",
        "1/2 | three �",
        "1/2 | 100%",
        "1/2 | done",
        "step 1/2 done in 1.2 s",
        "step 2/2 COPY a b",
        "step 2/2 cached",
    ]


def test_steps_side_by_side_are_told_apart(capsys: Captured) -> None:
    show = StepPrinter(Output()).show
    show(StepStarted(1, 3, "RUN a", "Layerfile:3"))
    show(StepStarted(2, 3, "RUN b", "Layerfile:5"))
    show(StepOutput(1, b"half "))
    show(StepOutput(2, b"two\n"))
    show(StepOutput(1, b"one\n"))
    show(StepDone(2, 1))
    show(Note("a cache is away"))
    show(StepStarted(3, 3, "COPY --from=b c d", "Layerfile:6"))
    show(StepCached(3, "dir:///cache"))
    assert capsys.readouterr().err.splitlines()[2:] == [
        "2/3 | two",
        "1/3 | half one",
        "step 2/3 done in 1.0 s",
        "note: a cache is away",
        "step 3/3 COPY --from=b c d",
        "step 3/3 cached in dir:///cache",
    ]


ROW = LayerRow(
    reference="base/x:1",
    kind="base",
    digest="sha256:0",
    entries=2,
    files=1,
    content_bytes=2_000_000,
    device_bytes=2_000_000,
    stored_bytes=1_000,
    chunks=1,
)


def test_a_build_says_what_it_took_and_gave(capsys: Captured) -> None:
    printer = StepPrinter(Output(progress="plain"))
    printer.show(StepStarted(1, 2, "RUN a", "Layerfile:3"))
    printer.show(StepCached(1))
    printer.finish(ROW)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("2 steps, 1 cached, 2.0 MB in ")


def test_a_program_is_told_what_a_build_took_and_gave(capsys: Captured) -> None:
    printer = StepPrinter(Output(progress="json"))
    printer.show(StepStarted(1, 1, "RUN a", "Layerfile:3"))
    printer.finish(ROW)
    event = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (event["event"], event["steps"], event["cached"]) == ("built", 1, 0)
    assert (event["content_bytes"], event["stored_bytes"]) == (2_000_000, 1_000)


def test_running_steps_are_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("LINES", "24")
        monkeypatch.setenv("COLUMNS", "80")
        with steps_shown(Output()) as printer:
            printer.show(StepStarted(1, 2, "RUN a", "Layerfile:3"))
            printer.show(StepStarted(2, 2, "RUN b", "Layerfile:4"))
            printer.show(StepOutput(1, b"from a\n"))
            printer.show(StepDone(1, 1))
        terminal.flush()
        said = _waiting(leader).decode()
    os.close(leader)
    assert "1/2 | from a" in said
    assert "step 1/2 done in 1.0 s" in said
    assert said.count("step 2/2 RUN b") > 1, "as a line, and as what runs"
    assert "\x1b[?25h" in said, "the cursor is back"


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
