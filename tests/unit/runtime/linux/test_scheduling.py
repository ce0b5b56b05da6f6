"""What a process hands on to its children is seen to change."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from dsec_runtime.linux.scheduling import inherited


@pytest.fixture
def child() -> Iterator[int]:
    pid = os.fork()
    if not pid:
        signal.pause()
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_it_stays_as_it_is(child: int) -> None:
    assert inherited(child) == inherited(child) == inherited(os.getpid())


def test_a_priority_is_seen(child: int) -> None:
    before = inherited(child)
    os.setpriority(os.PRIO_PROCESS, child, os.getpriority(os.PRIO_PROCESS, child) + 1)
    assert inherited(child) != before


def test_a_policy_is_seen(child: int) -> None:
    before = inherited(child)
    os.sched_setscheduler(child, os.SCHED_BATCH, os.sched_param(0))
    assert inherited(child) != before


def test_nobody_is_not_asked() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        inherited(pid)
