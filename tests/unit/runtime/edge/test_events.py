"""The log of a sandbox: bounded, followed, and read again."""

from __future__ import annotations

from pathlib import Path

from dsec_runtime.edge.events import Events
from dsec_runtime.messages import Event


def event(number: int, sandbox: str = "a", **detail: str) -> Event:
    return Event(time_s=float(number), sandbox=sandbox, kind="exec", detail={**detail})


def test_what_was_added_is_read_before_and_after_a_flush(tmp_path: Path) -> None:
    events = Events(tmp_path)
    told = [event(number, argv="x") for number in range(5)]
    for each in told[:3]:
        events.add(each)
    events.flush()
    for each in told[3:]:
        events.add(each)
    events.add(event(9, "b"))
    assert list(events.kept("a")) == told
    events.flush()
    assert list(Events(tmp_path).kept("a")) == told


def test_what_is_about_to_be_written_is_read_and_stays_in_order(tmp_path: Path) -> None:
    events = Events(tmp_path)
    told = [event(number) for number in range(4)]
    events.add(told[0])
    events.take()
    events.add(told[1])
    assert list(events.kept("a")) == told[:2]
    events.add(told[2], at_once=True)
    assert list(Events(tmp_path).kept("a")) == told[:3]
    events.add(told[3])
    events.flush()
    assert list(events.kept("a")) == list(Events(tmp_path).kept("a")) == told


def test_a_log_has_a_bound_and_keeps_the_last(tmp_path: Path) -> None:
    events = Events(tmp_path, log_bytes=2000)
    for number in range(500):
        events.add(event(number))
        events.flush()
    kept = [each.time_s for each in events.kept("a")]
    assert kept == [float(each) for each in range(500 - len(kept), 500)]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2200
    assert len(kept) > 10


def test_one_line_cannot_fill_it(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.add(event(1, argv="x" * 1_000_000))
    events.flush()
    (kept,) = events.kept("a")
    assert len(str(kept.detail["argv"])) < 1000


def test_a_line_cut_off_by_a_kill_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"time_s":1.0,"sandbox":"a","kind":"x"}\n{"time_s":2.')
    assert [each.kind for each in Events(tmp_path).kept("a")] == ["x"]


def test_listeners_hear_their_sandbox_or_all(tmp_path: Path) -> None:
    events = Events(tmp_path)
    with events.listening("a") as one, events.listening() as every:
        events.add(event(1))
        events.add(event(2, "b"))
        assert one.get_nowait() == event(1)
        assert one.empty()
        assert [every.get_nowait().sandbox for _ in range(2)] == ["a", "b"]
    events.add(event(3))
    assert one.empty()


def test_a_listener_that_does_not_listen_costs_a_bound(tmp_path: Path) -> None:
    events = Events(tmp_path)
    with events.listening("a") as queue:
        for number in range(5000):
            events.add(event(number))
        assert queue.qsize() < 2000


def test_forgotten_is_gone(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.add(event(1))
    events.flush()
    events.add(event(2))
    events.forget("a")
    events.flush()
    assert list(tmp_path.iterdir()) == []
