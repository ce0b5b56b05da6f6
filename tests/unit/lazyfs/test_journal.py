import multiprocessing
import os
from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.journal import (
    Journal,
    LayerUse,
    Owner,
    Phase,
    Record,
    new_id,
    of_earlier_boot,
)
from dsec_layers.linux import procinfo


def record(record_id: str = "a", **changes: object) -> Record:
    plain = Record(
        id=record_id,
        phase=Phase.MOUNTED,
        owner=Owner.current(),
        boot=procinfo.boot_id(),
        namespace=procinfo.mount_namespace() or 0,
        layers=(LayerUse("0" * 64, "1:2"),),
        bound=False,
        target="/mnt/a b\n",
    )
    return msgspec.structs.replace(plain, **changes)


def test_records_come_back_as_they_were_put(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with journal.locked():
        journal.put(record("b"))
        journal.put(record("a", bound=True, upper="/u", own_upper=True))
        journal.put(record("b", phase=Phase.REMOVING))
    assert journal.records() == [
        record("a", bound=True, upper="/u", own_upper=True),
        record("b", phase=Phase.REMOVING),
    ]
    with journal.locked():
        journal.drop(record("b"))
        journal.drop(record("b"))
    assert [each.id for each in journal.records()] == ["a"]


def test_a_node_without_mounts_has_no_records(tmp_path: Path) -> None:
    assert Journal(tmp_path / "none").records() == []


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"id": 1}', b"\xff"])
def test_a_malformed_record_is_named_and_hinted_at(tmp_path: Path, damage: bytes) -> None:
    journal = Journal(tmp_path)
    with journal.locked():
        journal.put(record())
    path = tmp_path / "journal" / "a.json"
    path.write_bytes(damage)
    with pytest.raises(CorruptError) as caught:
        journal.records()
    assert str(path) in caught.value.message
    assert str(path) in (caught.value.hint or "")


def test_a_record_that_went_with_the_machine_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that end with their process are not synced, and may be cut short by a crash."""
    journal = Journal(tmp_path)
    name = new_id(bound=True)
    path = tmp_path / "journal" / f"{name}.json"
    with journal.locked():
        journal.put(record(name, bound=True))
        path.write_bytes(b"")
        journal.sweep()
        with pytest.raises(CorruptError, match=name):  # nothing but damage explains it in this boot
            journal.records()
        monkeypatch.setattr(procinfo, "boot_id", lambda: "5eed5eed-0000-0000-0000-000000000000")
        assert of_earlier_boot(name)
        assert journal.records() == []
        assert path.exists()
        journal.sweep()
        assert not path.exists()


def test_only_those_that_end_with_their_process_tell_the_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lasting = new_id(bound=False)
    assert new_id(bound=False) != lasting
    monkeypatch.setattr(procinfo, "boot_id", lambda: "5eed5eed-0000-0000-0000-000000000000")
    assert not of_earlier_boot(lasting)
    assert not of_earlier_boot(new_id(bound=True))


def test_this_process_is_alive_and_a_later_one_of_its_id_is_another() -> None:
    current = Owner.current()
    assert current.alive
    assert not Owner(current.pid, current.start + 1).alive
    assert not Owner(2**22 + 1, 1).alive


def test_a_record_of_another_boot_or_namespace_is_not_here() -> None:
    assert record().here
    assert not record(boot="other").here
    assert not record(namespace=1).here


def _hold(run: Path, held: object, go: object) -> None:
    with Journal(run).locked():
        held.set()  # type: ignore[attr-defined]
        go.wait()  # type: ignore[attr-defined]
        os.kill(os.getpid(), 9)


def test_the_lock_excludes_and_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(tmp_path, held, go))
    child.start()
    try:
        assert held.wait(60)
        import fcntl

        fd = os.open(tmp_path / "mounts.lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        go.set()
        with Journal(tmp_path).locked():  # waits for the death of the holder
            pass
    finally:
        child.kill()
        child.join()
