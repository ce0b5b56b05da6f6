"""Tags as files: their names, their guard, their faults."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsec_layers.errors import (
    BusyError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
)
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import lease
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes, put_environment, put_layer

NAME = Reference.parse("base/debian:12")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "store", create=True)


def manifest(store: DirectoryStore, number: int) -> Descriptor:
    return put_bytes(store, b"manifest %d" % number, OCI_MANIFEST)


def test_names_that_look_alike_do_not_meet(store: DirectoryStore) -> None:
    texts = ["base/a:b", "base/a/b:c", "base/a-b:c", "base/a/b/c:d", "env/a:b", "base/a:B"]
    wanted = {Reference.parse(text): manifest(store, n) for n, text in enumerate(texts)}
    for reference, target in wanted.items():
        store.tag(reference, target, expected=None)
    assert dict(store.tags()) == wanted
    assert [str(reference) for reference, _ in store.tags(Kind.ENV)] == ["env/a:b"]
    listed = [reference for reference, _ in store.tags()]
    assert listed == sorted(listed)


def test_a_tag_needs_its_target(store: DirectoryStore) -> None:
    with pytest.raises(NotFoundError):
        store.tag(NAME, Descriptor.of(b"elsewhere", OCI_MANIFEST))
    assert list(store.tags()) == []


@pytest.mark.parametrize(
    "name", ["../../etc", "a/../b", "/a", "a//b", "a/@v1.json", "A", "a" * 256]
)
def test_no_other_name_becomes_a_path(store: DirectoryStore, name: str) -> None:
    target = manifest(store, 1)
    for reference in (Reference(Kind.BASE, name), Reference(Kind.BASE, "a", f"../{name}")):
        with pytest.raises(InvalidInputError):
            store.tag(reference, target)
        with pytest.raises(InvalidInputError):
            store.resolve(reference)
    assert not (store.root / "refs").exists()


def test_a_digest_must_match_its_tag(store: DirectoryStore) -> None:
    old, new = manifest(store, 1), manifest(store, 2)
    store.tag(NAME, old)
    pinned = NAME.pinned(old.parsed_digest)
    assert store.resolve(pinned) == old
    store.tag(NAME, new)
    with pytest.raises(NotFoundError, match=new.digest):
        store.resolve(pinned)


def test_a_digest_alone_names_a_manifest_or_an_index(store: DirectoryStore) -> None:
    layer = put_layer(store, NAME, [b"pack"])
    environment = put_environment(store, Reference(Kind.ENV, "e"), [(Kind.BASE, str(NAME), layer)])
    for kind, target in ((Kind.BASE, layer), (Kind.ENV, environment)):
        assert store.resolve(Reference(kind, "any", "", target.parsed_digest)) == target
    with pytest.raises(NotFoundError):
        store.resolve(Reference(Kind.BASE, "any", "", Digest("sha256", "0" * 64)))
    with pytest.raises(InvalidInputError, match="no tag"):
        store.tag(Reference(Kind.BASE, "any", "", layer.parsed_digest), layer)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"digest":"x","mediaType":"y","size":1}'])
def test_a_corrupt_reference_is_named_and_can_be_mended(store: DirectoryStore, data: bytes) -> None:
    target = manifest(store, 1)
    store.tag(NAME, target)
    (path,) = (store.root / "refs").rglob("@*.json")
    path.unlink()
    path.write_bytes(data)
    for ask in (lambda: store.resolve(NAME), lambda: list(store.tags())):
        with pytest.raises(CorruptError, match=str(path)):
            ask()
    with pytest.raises(CorruptError):
        store.tag(NAME, target, expected=None)
    store.tag(NAME, target)
    assert store.resolve(NAME) == target
    path.unlink()
    path.write_bytes(data)
    store.untag(NAME)
    assert list(store.tags()) == []


def test_one_of_many_threads_wins(store: DirectoryStore) -> None:
    writers = 8
    targets = [manifest(store, number) for number in range(writers)]
    barrier = threading.Barrier(writers)

    def swap(target: Descriptor) -> bool:
        barrier.wait()
        try:
            store.tag(NAME, target, expected=None)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(swap, targets))
    assert sum(won) == 1
    assert store.resolve(NAME) == targets[won.index(True)]


COUNTER = """
import sys
from pathlib import Path
from dsec_layers.errors import ConflictError
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry.directory import DirectoryStore

store, name = DirectoryStore.open(Path(sys.argv[1])), Reference.parse(sys.argv[2])
done = 0
while done < int(sys.argv[3]):
    stands = store.resolve(name)
    data = b"%d" % (int(store.read(stands)) + 1)
    target = Descriptor.of(data, OCI_MANIFEST)
    store.put(target, data)
    try:
        store.tag(name, target, expected=stands)
        done += 1
    except ConflictError:
        pass
"""


def test_no_step_of_many_processes_is_lost(store: DirectoryStore) -> None:
    processes, steps = 3, 20
    store.tag(NAME, put_bytes(store, b"0", OCI_MANIFEST))
    arguments = [sys.executable, "-c", COUNTER, str(store.root), str(NAME), str(steps)]
    running = [subprocess.Popen(arguments) for _ in range(processes)]
    try:
        assert [process.wait(60) for process in running] == [0] * processes
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert store.read(store.resolve(NAME)) == b"%d" % (processes * steps)


def test_a_writer_that_lost_its_lease_does_not_write(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = manifest(store, 1), manifest(store, 2)
    store.tag(NAME, old)
    check = lease.Lease.check

    def rival(held: lease.Lease) -> None:
        held.path.write_bytes(b"rival")
        check(held)

    monkeypatch.setattr(lease.Lease, "check", rival)
    with pytest.raises(BusyError):
        store.tag(NAME, new)
    with pytest.raises(BusyError):
        DirectoryStore(store.root, timing=lease.Timing(0, 0)).untag(NAME)
    assert store.resolve(NAME) == old
