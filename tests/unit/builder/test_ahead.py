"""What is read ahead is what is there; nothing goes on when it is not wanted any more."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dsec_layers.builder import ahead as module
from dsec_layers.builder.ahead import Ahead
from dsec_layers.builder.folding import one_diff
from dsec_layers.builder.stepcache import Result
from dsec_layers.errors import NotFoundError
from dsec_layers.linux import cancelling
from dsec_layers.model.content import Source
from dsec_layers.sources.upper import walk_upper


@pytest.fixture
def results(tmp_path: Path) -> list[Result]:
    """Four results; each has two files of its own, and one that the next has too."""
    for number in range(4):
        folder = tmp_path / f"upper{number}/folder"
        folder.mkdir(parents=True)
        for name in (f"{number}", f"{number}+", f"shared{number // 2}"):
            (folder / name).write_bytes(b"content" * number)
    return [Result("identity", tmp_path / f"upper{number}") for number in range(4)]


@pytest.mark.parametrize("counts", [[4], [2, 4], [0, 1, 2, 2], [1, 3], []])
def test_what_is_read_ahead_is_the_same(
    results: list[Result], monkeypatch: pytest.MonkeyPatch, counts: list[int]
) -> None:
    threads: list[str] = []

    def walk(upper: Path) -> Source:
        threads.append(threading.current_thread().name)
        return walk_upper(upper)

    monkeypatch.setattr(module, "walk_upper", walk)
    with Ahead(lambda: None) as ahead:
        for count in counts:
            ahead.begin(results[:count])
        diffs = ahead.diffs(results)
    assert one_diff(diffs) == one_diff([walk_upper(result.upper) for result in results])
    assert len(threads) == len(results)
    assert sum(name.startswith("ahead") for name in threads) == max(counts, default=0)


def test_without_a_command_nothing_is_done() -> None:
    called = threading.Event()
    with Ahead(called.set) as ahead:
        ahead.wait()
    assert not called.is_set()


def test_what_fails_is_told_where_it_is_needed(tmp_path: Path) -> None:
    def fail() -> None:
        raise NotFoundError("the store")

    gone = Result("identity", tmp_path / "gone")
    with Ahead(fail) as ahead:
        ahead.begin([gone])
        with pytest.raises(NotFoundError, match="the store"):
            ahead.wait()
        with pytest.raises(NotFoundError, match="gone"):
            ahead.diffs([gone])


def test_the_end_of_a_build_stops_the_work(
    results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def walk(upper: Path) -> Source:
        begun.set()
        stop = cancelling.event()
        assert stop is not None
        if stop.wait(30):
            stopped.set()
        return walk_upper(upper)

    monkeypatch.setattr(module, "walk_upper", walk)
    with Ahead(lambda: None) as ahead:
        ahead.begin(results)
        assert begun.wait(30)
    assert stopped.is_set()
