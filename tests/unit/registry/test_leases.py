"""Leases: what holds, what has run out, and what is done where none can be had."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dsec_layers.errors import BusyError, CorruptError, NotFoundError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry import condemned, files, leases, standing, transfer
from dsec_layers.registry.collect import Rules, collect, store_time
from dsec_layers.registry.condemned import Timing
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes, put_layer
from tests.support.whole_store import WholeStore

BLOB = Descriptor.of(b"data", PACK_TYPE)
LAYER = "ab" * 32


class Clock:
    """A clock that a test sets; sleeping lets its time pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> WholeStore:
    made = WholeStore(clock=clock)
    made.put(BLOB, b"data")
    clock.now += 1
    return made


def timing(clock: Clock) -> Timing:
    return Timing(lease_s=100, announcement_s=10, poll_s=1, clock=clock, sleep=clock.sleep)


def gone(store: WholeStore, clock: Clock) -> int:
    return collect(store, Rules(grace_s=0, workers=1, timing=timing(clock))).blobs


def test_what_is_held_stays_until_it_is_given_up(store: WholeStore, clock: Clock) -> None:
    with leases.hold(store, [BLOB], purpose="t", timing=timing(clock)):
        clock.now += 99
        assert gone(store, clock) == 0
    assert not store.noted
    assert gone(store, clock) == 1


def test_a_dead_holder_is_waited_for(store: WholeStore, clock: Clock) -> None:
    held = leases.Held(store, "t", timing(clock), optional=False)
    held.add([BLOB])
    clock.now += 60
    held_since = list(store.noted.values())
    with pytest.raises(BusyError):
        held.renew()
    assert list(store.noted.values()) == held_since, "who was late stays out"
    assert gone(store, clock) == 0
    clock.now += 60
    assert gone(store, clock) == 1
    assert store.noted, "somebody may just be renewing it"
    clock.now += 100
    gone(store, clock)
    assert not store.noted


def test_the_lease_of_a_mount(store: WholeStore, clock: Clock) -> None:
    with pytest.raises(NotFoundError):
        standing.renew(store, [LAYER])
    assert standing.lend(store, [LAYER], [BLOB], timing(clock))
    clock.now += standing.TTL_S - 1
    assert gone(store, clock) == 0
    standing.renew(store, [LAYER])
    clock.now += standing.TTL_S - 1
    assert gone(store, clock) == 0
    clock.now += 2
    assert gone(store, clock) == 1


def test_where_no_lease_can_be_had(store: WholeStore, clock: Clock) -> None:
    def refuse(what: str) -> None:
        if what == "write_note":
            raise StoreError("read only")

    closed = replace(store, step=refuse)
    assert not standing.lend(closed, [LAYER], [BLOB], timing(clock))
    assert not standing.lend(object(), [LAYER], [BLOB])
    with leases.hold(closed, [BLOB], purpose="t", optional=True) as held:
        held.check()
    with pytest.raises(StoreError), leases.hold(closed, [BLOB], purpose="t"):
        pass
    with leases.hold(object(), [BLOB], purpose="t") as held:
        held.check()


def test_a_collector_that_stood_still_removes_nothing(store: WholeStore, clock: Clock) -> None:
    with condemned.announced(store, [BLOB.digest], timing(clock)) as announcement:
        clock.now += 3
        announcement.check()
        clock.now += 4
        announcement.check()
        clock.now += 5
        with pytest.raises(BusyError):
            announcement.check()
    assert not store.noted


def test_the_announcement_of_a_dead_collector(store: WholeStore, clock: Clock) -> None:
    condemned.Announcement(store, [BLOB.digest], timing(clock))
    began = clock.now
    with leases.hold(store, [BLOB], purpose="t", timing=timing(clock)):
        assert 10 <= clock.now - began <= 12
        assert store.has(BLOB)
    other = Descriptor.of(b"other", PACK_TYPE)
    condemned.Announcement(store, [BLOB.digest], timing(clock))
    began = clock.now
    with leases.hold(store, [other], purpose="t", timing=timing(clock)):
        assert clock.now == began, "it does not name what is held"


@pytest.mark.parametrize("left", [b"", bytes(4096), b'{"digests":["sha256:'])
def test_a_lease_that_a_power_failure_cut_short(
    store: WholeStore, clock: Clock, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    leases.Held(store, "t", timing(clock), optional=False).add([BLOB])
    (name,) = store.noted
    store.noted[name] = left, clock.now
    with pytest.raises(CorruptError):  # this boot has seen no power failure: it is damage
        gone(store, clock)
    monkeypatch.setattr("dsec_layers.linux.procinfo.boot_id", lambda: "0" * 36)
    clock.now += 1
    assert gone(store, clock) == 1, "its holder ended with the machine"
    assert name in store.noted
    clock.now += 2 * Timing().lease_s
    gone(store, clock)
    assert not store.noted


@pytest.mark.parametrize(("scheme", "synced"), [("dir", 0), ("threefs", 1)])
def test_a_lease_is_synced_only_where_nodes_fail_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, synced: int
) -> None:
    DirectoryStore.open(tmp_path / "s", create=True)
    store = DirectoryStore.open(tmp_path / "s", scheme=scheme)
    files.make_directory(tmp_path / "s" / "leases", tmp_path / "s")
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    with leases.hold(store, [BLOB], purpose="t"):
        assert len(calls) == synced
    standing.lend(store, [LAYER], [BLOB])
    assert len(calls) == synced + 1, "that of a mount outlives its maker"


def test_notes_of_a_directory(tmp_path: Path) -> None:
    store = DirectoryStore.open(tmp_path / "s", create=True)
    assert list(store.notes("leases")) == []
    store.write_note("leases/a", b"1")
    store.write_note("leases/a", b"2")
    assert store.read_note("leases/a") == b"2"
    (note,) = store.notes("leases")
    assert abs(note.modified_s - store_time(store)) < 60
    store.remove_note("leases/a")
    store.remove_note("leases/a")
    with pytest.raises(NotFoundError):
        store.read_note("leases/a")
    assert not list((tmp_path / "s").rglob("tmp-*"))


def test_a_copy_leaves_no_lease_behind(tmp_path: Path) -> None:
    near, far = (DirectoryStore.open(tmp_path / name, create=True) for name in ("near", "far"))
    name = Reference.parse("base/b:1")
    put_layer(near, name, [b"pack"])
    put_bytes(far, b"pack")
    transfer.copy(name, near, far)
    assert not [*near.notes("leases"), *far.notes("leases")]
