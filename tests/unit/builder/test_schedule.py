from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from dsec_layers.builder.schedule import carry_out
from dsec_layers.linux import cancelling

PATIENCE_S = 20


def test_one_thread_does_all_in_order() -> None:
    done: list[int] = []
    carry_out({4: {1, 2}, 3: (), 1: (), 2: {1}}, done.append, 1)
    assert done == [1, 2, 3, 4]


def test_nothing_to_do() -> None:
    carry_out({}, lambda number: None, 4)


def test_what_needs_nothing_runs_side_by_side_and_the_rest_waits() -> None:
    together = threading.Barrier(2, timeout=PATIENCE_S)
    done: list[int] = []

    def perform(number: int) -> None:
        if number in (2, 3):
            together.wait()
        done.append(number)

    carry_out({1: (), 2: {1}, 3: {1}, 4: {2, 3}}, perform, 4)
    assert done[0] == 1
    assert done[3] == 4


def test_no_more_than_jobs_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def perform(number: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    carry_out(dict.fromkeys(range(12), ()), perform, 3)
    assert most == 3


def test_the_first_error_stops_the_others_and_is_raised() -> None:
    stopped = threading.Event()
    begun = threading.Event()
    done: list[int] = []

    def perform(number: int) -> None:
        if number == 1:
            assert begun.wait(PATIENCE_S)
            raise ValueError("first")
        if number == 2:
            begun.set()
            give_up = time.monotonic() + PATIENCE_S
            try:
                while time.monotonic() < give_up:
                    cancelling.check()
                    time.sleep(0.01)
            except InterruptedError:
                stopped.set()
                raise
        done.append(number)

    with pytest.raises(ValueError, match="first"):
        carry_out({1: (), 2: (), 3: {1}, 4: {2}}, perform, 2)
    assert stopped.is_set()
    assert done == []


def test_an_interrupt_of_the_caller_stops_all() -> None:
    begun = threading.Event()
    ended: list[int] = []

    def perform(number: int) -> None:
        begun.set()
        give_up = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < give_up:
                cancelling.check()
                time.sleep(0.01)
        finally:
            ended.append(number)

    def interrupt() -> None:
        begun.wait(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        carry_out({1: (), 2: {1}}, perform, 2)
    interrupter.join()
    assert ended == [1]
