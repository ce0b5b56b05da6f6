"""Transfers move what is missing, in an order that never shows a part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.shaper import Counters, Line, ShapedStore
from dsec_layers.errors import ConflictError, CorruptError, NotFoundError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import layers, transfer
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes, put_environment, put_layer

BASE = Reference.parse("base/debian:12")
WORK = Reference.parse("workspace/a/b:v1")
ENV = Reference.parse("env/demo:v1")
SHARED = b"a pack of both layers" * 1000
PIECE = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore.open(tmp_path / "source", create=True)
    base = put_layer(store, BASE, [b"1" * (3 * PIECE), SHARED])
    work = put_layer(store, WORK, [b"2" * 5000, SHARED])
    put_environment(store, ENV, [(Kind.BASE, str(BASE), base), (Kind.WORKSPACE, str(WORK), work)])
    return store


@pytest.fixture
def destination(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "destination", create=True)


def contents(store: DirectoryStore) -> dict[str, bytes]:
    return {blob.digest: store.read(blob) for blob in store.blobs()}


@pytest.mark.parametrize("workers", [1, 8])
def test_an_environment_brings_its_layers(
    source: DirectoryStore, destination: DirectoryStore, workers: int
) -> None:
    events: list[transfer.Event] = []
    copied = transfer.copy(ENV, source, destination, workers=workers, progress=events.append)
    assert contents(destination) == contents(source)
    assert destination.resolve(ENV) == source.resolve(ENV) == copied.target
    assert [reference for reference, _ in destination.tags()] == [ENV]
    total = sum(blob.size for blob in source.blobs())
    count = len(list(source.blobs()))
    assert events[0] == transfer.Planned(count, total, 0, 0)
    moved = sum(event.bytes for event in events if isinstance(event, transfer.Moved))
    assert moved == total == copied.moved_bytes
    assert events[-1] == transfer.Published(copied.target)


def test_a_second_copy_moves_nothing_and_an_overlapping_one_little(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    first = transfer.copy(BASE, source, destination)
    again = transfer.copy(BASE, source, destination)
    assert (again.moved_bytes, again.skipped_bytes) == (0, first.moved_bytes)
    work = transfer.copy(WORK, source, destination)
    assert 5000 < work.moved_bytes < 5000 + 4000
    assert work.skipped_bytes == len(SHARED)


def test_metadata_alone(source: DirectoryStore, destination: DirectoryStore) -> None:
    transfer.copy(ENV, source, destination, metadata_only=True)
    assert not [blob for blob in destination.blobs() if blob.media_type == PACK_TYPE]
    for layer in layers.layer_descriptors(destination, destination.resolve(ENV)):
        loaded = layers.load_layer(destination, layer)
        assert destination.read(loaded.manifest.metadata)
        assert destination.read(loaded.manifest.table)
    with pytest.raises(NotFoundError):
        transfer.copy(ENV, destination, DirectoryStore.open(destination.root / "3", create=True))
    transfer.copy(ENV, source, destination)
    assert contents(destination) == contents(source)


@pytest.mark.parametrize("carried", [True, False])
def test_manifests_that_come_along_are_not_asked_for(
    source: DirectoryStore, destination: DirectoryStore, *, carried: bool
) -> None:
    manifest = layers.load_manifest(source, source.resolve(BASE)).encode()
    wrong = manifest[:-1] + b" "
    base = source.resolve(BASE).carrying(manifest if carried else wrong)
    name = Reference.parse("env/carrying:v1")
    put_environment(source, name, [(Kind.BASE, str(BASE), base)])
    counters = Counters()
    shaped = ShapedStore(source.url, source, Line(0, 1e12, counters))
    transfer.copy(name, shaped, destination, metadata_only=True, of_layers=False)
    # The tag, the index, what is attached to it; config, metadata, table.
    assert counters.requests == 6 + (not carried)
    assert destination.read(base) == manifest
    counters.close()


def test_another_name_and_a_guard(source: DirectoryStore, destination: DirectoryStore) -> None:
    name = Reference.parse("base/other:v2")
    transfer.copy(BASE, source, destination, name=name, expected=None)
    assert [reference for reference, _ in destination.tags()] == [name]
    with pytest.raises(ConflictError):
        transfer.copy(WORK, source, destination, name=name, expected=None)


def test_a_digest_without_a_tag_tags_nothing(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    target = source.resolve(BASE)
    transfer.copy(Reference(Kind.BASE, "debian", "", target.parsed_digest), source, destination)
    assert list(destination.tags()) == []
    assert layers.load_layer(destination, target)
    transfer.copy(BASE.pinned(target.parsed_digest), source, destination)
    assert [str(reference) for reference, _ in destination.tags()] == ["base/debian:12"]


class Watched(DirectoryStore):
    """A store that notes its puts and fails at one of them."""

    def __init__(self, root: Path, fail_at: int) -> None:
        super().__init__(root)
        self.fail_at = fail_at
        self.puts: list[Descriptor] = []
        self.lock = threading.Lock()

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        with self.lock:
            if len(self.puts) == self.fail_at:
                raise StoreError("the line is cut")
            self.puts.append(blob)
        return super().put(blob, source, consume=consume)

    def is_closed(self) -> bool:
        """Whether every manifest that is there has its blobs, and every index its manifests."""
        for blob in self.puts:
            if not self.has(blob):
                continue
            if blob.media_type.endswith("manifest.v1+json"):
                if not all(map(self.has, layers.load_manifest(self, blob).blobs)):
                    return False
            elif blob.media_type.endswith("index.v1+json") and not all(
                map(self.has, layers.load_environment(self, blob).layers)
            ):
                return False
        return True


@pytest.mark.parametrize("workers", [1, 4])
def test_cut_anywhere_nothing_shows_and_the_next_copy_resumes(
    source: DirectoryStore, destination: DirectoryStore, workers: int
) -> None:
    count = len(list(source.blobs()))
    for fail_at in range(count):
        store = Watched(destination.root, fail_at)
        for blob in list(store.blobs()):
            store.delete(blob)
        with pytest.raises(StoreError, match="the line is cut"):
            transfer.copy(ENV, source, store, workers=workers)
        assert list(store.tags()) == []
        assert store.is_closed()
        arrived = list(store.blobs())
        assert len(arrived) <= fail_at
        resumed = transfer.copy(ENV, source, destination)
        assert resumed.skipped_bytes == sum(blob.size for blob in arrived)
        assert contents(destination) == contents(source)
        destination.untag(ENV)


def test_the_order_is_that_of_the_design(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    store = Watched(destination.root, -1)
    transfer.copy(ENV, source, store, workers=1)
    kinds = [blob.media_type.split("dsec.layer.")[-1].split(".v1")[0] for blob in store.puts]
    assert kinds == [
        *["pack"] * 3,
        *["chunktable"] * 2,
        *["metadata"] * 2,
        *["config"] * 2,
        *["application/vnd.oci.image.manifest"] * 2,
        "application/vnd.oci.image.index",
    ]


def test_a_corrupt_source_stops_the_copy(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    pack = Descriptor.of(SHARED, PACK_TYPE)
    path = source.root / "packs" / pack.digest[7:9] / pack.digest[7:]
    path.unlink()
    path.write_bytes(SHARED[:-1] + b"x")
    with pytest.raises(CorruptError):
        transfer.copy(ENV, source, destination)
    assert list(destination.tags()) == []
    assert not destination.has(pack)


def test_an_interrupt_stops_the_threads(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    def interrupt(event: transfer.Event) -> None:
        if isinstance(event, transfer.Planned):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer.copy(ENV, source, destination, progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("transfer")]
    assert list(destination.blobs()) == []


def test_one_failure_stops_the_other_threads(
    source: DirectoryStore, destination: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def stream(blob: Descriptor) -> Iterator[bytes]:
        if blob.size > PIECE:
            while True:  # a line that delivers nothing for ever
                begun.set()
                yield b""
        begun.wait()
        raise StoreError("the line is cut")

    monkeypatch.setattr(source, "stream", stream)
    with pytest.raises(StoreError, match="the line is cut"):
        transfer.copy(ENV, source, destination)
    assert list(destination.blobs()) == []


def test_memory_is_bounded_and_a_repeated_copy_asks_little(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    largest = max(len(piece) for blob in source.blobs() for piece in source.stream(blob))
    assert largest <= PIECE
    counters = Counters()
    far = ShapedStore("far", destination, Line(0, float("inf"), counters))
    transfer.copy(ENV, source, far)
    first = counters.requests
    assert counters.bytes == sum(blob.size for blob in source.blobs())
    transfer.copy(ENV, source, far)
    assert counters.requests - first == len(list(source.blobs())) + 1, "one has each, one tag"
    counters.close()


def test_what_is_not_there(source: DirectoryStore, destination: DirectoryStore) -> None:
    with pytest.raises(NotFoundError):
        transfer.copy(Reference.parse("base/absent"), source, destination)
    source.delete(layers.load_manifest(source, source.resolve(BASE)).table)
    with pytest.raises(NotFoundError):
        transfer.copy(BASE, source, destination)
    assert list(destination.tags()) == []
    assert put_bytes(destination, b"still usable")
