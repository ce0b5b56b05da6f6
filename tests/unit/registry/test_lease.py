"""Leases exclude each other, and a crashed holder stands in the way for one lease only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsec_layers.errors import BusyError
from dsec_layers.registry.lease import Timing, hold


class FakeTime:
    """A clock that moves only when somebody sleeps; `during` runs in the sleeps, once each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.during: list[Callable[[], object]] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.during:
            self.during.pop(0)()

    def timing(self, patience_s: float = 60) -> Timing:
        return Timing(
            lease_s=10,
            settle_s=1,
            patience_s=patience_s,
            poll_s=0.5,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_lease_is_gone_after_use(tmp_path: Path) -> None:
    with hold(tmp_path / "lock", tmp_path) as lease:
        lease.check()
        assert names(tmp_path) == ["lock"]
    assert names(tmp_path) == []


def test_a_failing_holder_releases(tmp_path: Path) -> None:
    with pytest.raises(KeyError), hold(tmp_path / "lock", tmp_path):
        raise KeyError
    assert names(tmp_path) == []


def test_the_next_one_waits_for_the_release(tmp_path: Path) -> None:
    time = FakeTime()
    lock = tmp_path / "lock"
    lock.write_bytes(b"another")
    time.during = [lambda: None, lock.unlink]
    with hold(lock, tmp_path, time.timing()) as lease:
        lease.check()
        assert time.now == 1.0, "taken at once when free, not after the lease"


def test_a_crashed_holder_is_replaced_after_one_lease(tmp_path: Path) -> None:
    time = FakeTime()
    lock = tmp_path / "lock"
    lock.write_bytes(b"crashed")
    with hold(lock, tmp_path, time.timing()) as lease:
        lease.check()
        assert 10 <= time.now <= 12
    assert names(tmp_path) == []


def test_holders_that_come_and_go_are_not_taken_for_a_crashed_one(tmp_path: Path) -> None:
    time = FakeTime()
    lock = tmp_path / "lock"
    lock.write_bytes(b"holder 0")

    def change(number: int) -> Callable[[], object]:
        return lambda: lock.write_bytes(b"holder %d" % number)

    time.during = [change(number) for number in range(1000)]
    with pytest.raises(BusyError), hold(lock, tmp_path, time.timing(patience_s=60)):
        pass
    assert lock.exists()
    assert names(tmp_path) == ["lock"]


def test_who_loses_a_takeover_waits_again(tmp_path: Path) -> None:
    time = FakeTime()
    lock = tmp_path / "lock"
    lock.write_bytes(b"crashed")

    def rival() -> None:  # takes over while we settle
        if lock.read_bytes() != b"crashed":
            lock.unlink()
            lock.write_bytes(b"rival")
            time.during.clear()

    time.during = [rival] * 100
    with hold(lock, tmp_path, time.timing()) as lease:
        lease.check()
        assert time.now >= 10 + 1 + 10
    assert names(tmp_path) == []


def test_a_holder_that_was_replaced_must_not_commit(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold(lock, tmp_path) as lease:
        lock.write_bytes(b"rival")
        with pytest.raises(BusyError):
            lease.check()
    assert lock.read_bytes() == b"rival", "the lock of another is left alone"


def test_a_slow_holder_must_not_commit(tmp_path: Path) -> None:
    time = FakeTime()
    with hold(tmp_path / "lock", tmp_path, time.timing()) as lease:
        time.now += 4.9
        lease.check()
        time.now += 0.2
        with pytest.raises(BusyError):
            lease.check()
