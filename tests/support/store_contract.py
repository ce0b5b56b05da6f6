"""What every store must do, whatever is behind it.

A module of tests inherits `StoreContract` and gives a fixture `store`: an empty store. It sets
`guards` to False where compare and swap is refused, `collected` to False where blobs cannot be
listed, and `PATIENT` where an answer takes its time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.blobs import Store
from dsec_layers.model.collecting import Collectable
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import CONFIG_TYPE, OCI_MANIFEST, PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.attachments import attachments, publish
from tests.support.stores import put_bytes, put_environment, put_layer

DATA = bytes(range(256)) * 9000  # more than two pieces
BLOB = Descriptor.of(DATA, PACK_TYPE)
LARGE_BYTES = (17 << 20) + 5  # more than two parts of an upload
BASE = Reference.parse("base/debian:12")


def large() -> tuple[bytes, Descriptor]:
    """A blob that is sent in parts where that is done."""
    line = bytes(range(251))
    data = (line * (LARGE_BYTES // len(line) + 1))[:LARGE_BYTES]
    return data, Descriptor.of(data, PACK_TYPE)


def in_pieces(data: bytes, size: int = 70_000) -> Iterator[bytes]:
    """An iterator as another store gives it."""
    return (data[start : start + size] for start in range(0, len(data), size))


def cut(data: bytes, error: BaseException) -> Iterator[bytes]:
    """A source that fails in the middle."""
    yield data[: len(data) // 2]
    raise error


class StoreContract:
    """Inherit and give the fixture `store`."""

    guards = True
    collected = True

    @pytest.fixture
    def layer(self, store: Store) -> Descriptor:
        """A whole small layer, tagged."""
        return put_layer(store, BASE, [b"pack one", b"pack two"])

    def test_a_blob_comes_back_from_any_source(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "source"
        for number in range(3):
            data = DATA + bytes([number])
            path.write_bytes(data)
            blob = Descriptor.of(data, PACK_TYPE)
            assert not store.has(blob)
            for expected in (True, False):
                sources: tuple[bytes | Path | Iterator[bytes], ...]
                sources = (data, path, in_pieces(data))
                assert store.put(blob, sources[number]) is expected
            assert store.has(blob)
            assert store.read(blob) == b"".join(store.stream(blob)) == data
            assert path.exists(), "it was not given away"

    def test_a_file_given_away_is_gone(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "source"
        for expected in (True, False):
            path.write_bytes(DATA)
            assert store.put(BLOB, path, consume=True) is expected
            assert not path.exists()
        assert store.read(BLOB) == DATA

    def test_a_large_blob(self, store: Store) -> None:
        data, blob = large()
        assert store.put(blob, in_pieces(data)) is True
        assert store.has(blob)
        assert b"".join(store.stream(blob)) == data
        assert store.read(blob, 8 << 20, 100) == data[8 << 20 :][:100]
        assert store.put(blob, in_pieces(data)) is False

    def test_ranges(self, store: Store) -> None:
        store.put(BLOB, DATA)
        size = len(DATA)
        for offset, length in ((0, 0), (0, 1), (size - 1, 1), (size, 0), (4097, 1_500_000)):
            assert store.read(BLOB, offset, length) == DATA[offset : offset + length]
        assert store.read(BLOB, 1000) == DATA[1000:]
        for offset, length in ((-1, 2), (0, size + 1), (size + 1, 0), (size, 1), (5, -1)):
            with pytest.raises(CorruptError):
                store.read(BLOB, offset, length)

    def test_the_empty_blob(self, store: Store) -> None:
        blob = put_bytes(store, b"", CONFIG_TYPE)
        assert store.has(blob)
        assert store.read(blob) == b""
        assert list(store.stream(blob)) == []

    def test_missing_is_not_found(self, store: Store) -> None:
        assert not store.has(BLOB)
        for offset, length in ((0, None), (5, 10), (5, 0)):
            with pytest.raises(NotFoundError):
                store.read(BLOB, offset, length)
        with pytest.raises(NotFoundError):
            next(store.stream(BLOB))
        with pytest.raises(NotFoundError):
            store.read(Descriptor.of(b"", CONFIG_TYPE))
        store.delete(BLOB)

    def test_digests_of_other_algorithms_are_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInputError):
            store.has(Descriptor(PACK_TYPE, f"blake3:{'0' * 64}", 1))
        with pytest.raises(InvalidInputError):
            store.read(Descriptor(PACK_TYPE, "sha256:../../etc/passwd", 1))

    @pytest.mark.parametrize("size", [len(DATA), LARGE_BYTES])
    def test_a_source_that_is_something_else_is_refused(self, store: Store, size: int) -> None:
        data, blob = (DATA, BLOB) if size == len(DATA) else large()
        for other in (data[:-1], data + b"x", data[:-1] + bytes([data[-1] ^ 1]), b""):
            with pytest.raises(CorruptError):
                store.put(blob, in_pieces(other))
            assert not store.has(blob)
        lie = msgspec.structs.replace(blob, size=blob.size + 1)
        with pytest.raises(CorruptError):
            store.put(lie, in_pieces(data))
        assert not store.has(lie)
        self.nothing_is_left(store)

    @pytest.mark.parametrize("size", [len(DATA), LARGE_BYTES])
    def test_a_source_that_fails_leaves_nothing(self, store: Store, size: int) -> None:
        data, blob = (DATA, BLOB) if size == len(DATA) else large()
        for error in (StoreError("line cut"), KeyboardInterrupt(), OSError(5, "EIO")):
            with pytest.raises((StoreError, KeyboardInterrupt)):
                store.put(blob, cut(data, error))
            assert not store.has(blob)
        self.nothing_is_left(store)

    def nothing_is_left(self, store: Store) -> None:
        """For stores that can look further."""
        if self.collected:
            assert list(store.blobs()) == []

    @pytest.mark.parametrize("size", [len(DATA), LARGE_BYTES])
    def test_many_writers_of_one_blob(self, store: Store, size: int) -> None:
        data, blob = (DATA, BLOB) if size == len(DATA) else large()
        writers = 6
        barrier = threading.Barrier(writers)

        def pieces() -> Iterator[bytes]:
            barrier.wait(60)  # all have found that it is not there
            yield from in_pieces(data, 1 << 20)

        with ThreadPoolExecutor(writers) as pool:
            written = [pool.submit(store.put, blob, pieces()) for _ in range(writers)]
        assert any(each.result() for each in written)
        assert store.read(blob) == data

    def test_many_threads(self, store: Store) -> None:
        contents = [b"%d" % number * 500 for number in range(40)]
        with ThreadPoolExecutor(16) as pool:
            blobs = list(pool.map(lambda data: put_bytes(store, data), contents))
            found = list(pool.map(store.read, blobs * 3))
            parts = list(pool.map(lambda blob: store.read(blob, 1, 2), blobs))
        assert found == contents * 3
        assert parts == [data[1:3] for data in contents]

    def test_blobs_and_their_removal(self, store: Store) -> None:
        if not self.collected:
            pytest.skip("this store collects by itself")
        pack, other = put_bytes(store, b"1"), put_bytes(store, b"2", CONFIG_TYPE)
        listed = list(store.blobs())
        assert listed[0] == pack
        assert [blob.digest for blob in listed] == [pack.digest, other.digest]
        assert listed[1].size == 1
        store.delete(pack)
        store.delete(pack)
        assert not store.has(pack)
        assert store.has(other)
        assert [blob.digest for blob in store.blobs()] == [other.digest]

    def test_a_tag(self, store: Store, layer: Descriptor) -> None:
        assert store.resolve(BASE) == layer
        assert store.resolve(BASE.pinned(layer.parsed_digest)) == layer
        with pytest.raises(NotFoundError):
            store.resolve(BASE.pinned(Digest.sha256(b"other")))
        for absent in ("base/debian:13", "base/debian/12:12", "workspace/debian:12"):
            with pytest.raises(NotFoundError):
                store.resolve(Reference.parse(absent))

    def test_a_digest_alone(self, store: Store, layer: Descriptor) -> None:
        environment = put_environment(
            store, Reference.parse("env/demo:1"), [(Kind.BASE, "debian", layer)]
        )
        for kind, name, target in ((Kind.BASE, "debian", layer), (Kind.ENV, "demo", environment)):
            assert store.resolve(Reference(kind, name, "", target.parsed_digest)) == target
        with pytest.raises(NotFoundError):
            store.resolve(Reference(Kind.BASE, "debian", "", Digest.sha256(b"other")))

    def test_a_tag_moves(self, store: Store, layer: Descriptor) -> None:
        other = put_layer(store, Reference.parse("base/debian:next"), [b"pack three"])
        store.tag(BASE, other)
        assert store.resolve(BASE) == other
        store.untag(BASE)
        with pytest.raises(NotFoundError):
            store.resolve(BASE)
        with pytest.raises(NotFoundError):
            store.untag(BASE)
        assert store.resolve(Reference.parse("base/debian:next")) == other

    def test_what_is_not_there_cannot_be_tagged(self, store: Store) -> None:
        absent = Descriptor.of(b"{}", OCI_MANIFEST)
        with pytest.raises(NotFoundError):
            store.tag(BASE, absent)
        with pytest.raises(NotFoundError):
            store.resolve(BASE)

    def test_compare_and_swap(self, store: Store, layer: Descriptor) -> None:
        other = put_layer(store, Reference.parse("base/debian:next"), [b"pack three"])
        fresh = Reference.parse("base/debian:fresh")
        if not self.guards:
            with pytest.raises(StoreError, match=r"compare|guard|swap"):
                store.tag(fresh, layer, expected=None)
            with pytest.raises(NotFoundError):
                store.resolve(fresh)
            return
        store.tag(fresh, layer, expected=None)
        for wrong in (None, other):
            with pytest.raises(ConflictError):
                store.tag(fresh, other, expected=wrong)
        assert store.resolve(fresh) == layer
        store.tag(fresh, other, expected=layer)
        assert store.resolve(fresh) == other
        with pytest.raises(ConflictError):
            store.tag(Reference.parse("base/debian:absent"), layer, expected=layer)

    def test_of_many_who_swap_one_wins(self, store: Store, layer: Descriptor) -> None:
        if not self.guards:
            pytest.skip("this store refuses to compare")
        rivals = [
            put_layer(store, Reference.parse(f"base/rival:{number}"), [b"%d" % number])
            for number in range(6)
        ]
        fresh = Reference.parse("base/debian:fresh")
        expected: Descriptor | None
        for expected in (None, layer):
            if expected:
                store.tag(fresh, layer)

            def swap(rival: Descriptor, expected: Descriptor | None = expected) -> bool:
                try:
                    store.tag(fresh, rival, expected=expected)
                except ConflictError:
                    return False
                return True

            with ThreadPoolExecutor(len(rivals)) as pool:
                won = list(pool.map(swap, rivals))
            assert sum(won) == 1
            assert store.resolve(fresh) == rivals[won.index(True)]

    def test_tags_are_listed_in_order(self, store: Store) -> None:
        names = ["base/b:2", "base/b:10", "base/a/c:1", "base/a:1", "toolkit/t:x", "workspace/w:1"]
        references = [Reference.parse(name) for name in names]
        targets = {each: put_layer(store, each, [str(each).encode()]) for each in references}
        listed = [(each, target.digest) for each, target in store.tags()]
        assert listed == [(each, targets[each].digest) for each in sorted(references)]
        assert [str(each) for each, _ in store.tags(Kind.BASE)] == [
            *("base/a:1", "base/a/c:1", "base/b:10", "base/b:2")
        ]
        assert [str(each) for each, _ in store.tags(Kind.BASE, "a")] == ["base/a:1"]
        assert [str(each) for each, _ in store.tags(name="a/c")] == ["base/a/c:1"]
        assert list(store.tags(Kind.ENV)) == list(store.tags(Kind.BASE, "none")) == []

    def test_annotations_stay_with_the_tag(self, store: Store, layer: Descriptor) -> None:
        noted = msgspec.structs.replace(layer, annotations={"when": "today"})
        store.tag(BASE, noted)
        assert store.resolve(BASE) == layer
        if self.collected:
            assert store.tagged(BASE) == noted
            assert list(store.tags()) == [(BASE, noted)]
        if self.guards:
            store.tag(BASE, layer, expected=noted)
            store.tag(BASE, noted, expected=layer)

    def test_long_names(self, store: Store, layer: Descriptor) -> None:
        name = Reference.parse(f"base/{'n' * 100}/{'m' * 100}:{'T' * 128}")
        store.tag(name, layer)
        assert store.resolve(name) == layer

    def test_attachments(self, store: Store, layer: Descriptor) -> None:
        assert list(store.referrers(layer)) == []
        attached = [
            publish(store, Attachment("application/vnd.dsec.test.v1", layer, (blob,)), data)
            for data in (b"one", b"two")
            for blob in (Descriptor.of(data, "text/plain"),)
        ]
        expected = sorted(each.digest for each in attached)
        assert [each.digest for each in store.referrers(layer)] == expected
        assert [each.digest for each, _ in attachments(store, layer)] == expected
        store.attach(layer, attached[0])  # again
        store.detach(layer, attached[1])
        store.detach(layer, attached[1])
        assert [each.digest for each in store.referrers(layer)] == [attached[0].digest]
        assert [str(each) for each, _ in store.tags()] == [str(BASE)]
        with pytest.raises(NotFoundError):
            store.attach(layer, Descriptor.of(b"absent", OCI_MANIFEST))

    def test_notes_and_times(self, store: Store, layer: Descriptor) -> None:
        if not self.collected:
            pytest.skip("this store collects by itself")
        assert isinstance(store, Collectable)
        assert list(store.notes("leases")) == []
        store.write_note("leases/one", b"1")
        store.write_note("leases/one", b"2")
        store.write_note("condemned/two", b"")
        (note,) = store.notes("leases")
        assert note.name == "leases/one"
        assert store.read_note("leases/one") == b"2"
        store.renew(layer)
        assert store.renewed(layer) >= note.modified_s - 2  # whole seconds, rounded either way
        for _ in range(2):
            store.remove_note("leases/one")
        assert list(store.notes("leases")) == []
        with pytest.raises(NotFoundError):
            store.read_note("leases/one")
        for ask in (store.renew, store.renewed):
            with pytest.raises(NotFoundError):
                ask(BLOB)

    def test_its_url_says_what_it_is(self, store: Store) -> None:
        assert "://" in store.url
