"""Which memory is advised, and that one range that cannot be does not keep the others from it."""

from __future__ import annotations

import os

import pytest

from dsec_runtime.linux import syscalls
from dsec_runtime.resources import reclaim


def test_the_memory_of_a_process_is_found() -> None:
    found = list(reclaim.ranges(os.getpid()))
    assert found
    assert all(start % 4096 == 0 and length > 0 for start, length in found)


def test_ranges_that_are_refused_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = [(at * 4096, 4096) for at in range(3000)]
    bad = {memory[0], memory[7], memory[1500], memory[2999]}
    advised = []

    def madvise(_pidfd: int, ranges: list[tuple[int, int]], _advice: int) -> int:
        done = 0
        for each in ranges:
            if each in bad:
                break
            advised.append(each)
            done += each[1]
        if done == 0:
            raise OSError(22, "no")
        return done

    monkeypatch.setattr(reclaim, "ranges", lambda _pid: iter(memory))
    monkeypatch.setattr(syscalls, "process_madvise", madvise)
    reclaim.page_out([os.getpid()])
    assert advised == [each for each in memory if each not in bad]


def test_a_process_that_is_gone_is_no_error() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    reclaim.page_out([child])
    reclaim.fetch_ahead([child])
