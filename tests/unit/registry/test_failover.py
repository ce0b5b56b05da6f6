"""Failover: missing falls through, everything else does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.failover import Failover
from tests.support.stores import put_bytes

DATA = b"data" * 1000
BLOB = Descriptor.of(DATA, PACK_TYPE)
NAME = Reference.parse("base/debian:12")


@pytest.fixture
def stores(tmp_path: Path) -> list[DirectoryStore]:
    return [DirectoryStore.open(tmp_path / name, create=True) for name in ("near", "far")]


def test_the_first_that_has_it_answers(stores: list[DirectoryStore]) -> None:
    both = Failover(stores)
    assert not both.has(BLOB)
    stores[1].put(BLOB, DATA)
    stores[1].tag(NAME, BLOB)
    assert both.has(BLOB)
    assert both.read(BLOB) == b"".join(both.stream(BLOB)) == DATA
    assert both.read(BLOB, 2, 3) == DATA[2:5]
    assert both.resolve(NAME) == BLOB
    other = put_bytes(stores[0], b"other")
    stores[0].tag(NAME, other)
    assert both.resolve(NAME) == other


def test_what_none_has_is_missing_and_all_are_named(stores: list[DirectoryStore]) -> None:
    both = Failover(stores)
    for ask in (
        lambda: both.read(BLOB),
        lambda: next(both.stream(BLOB)),
        lambda: both.resolve(NAME),
    ):
        with pytest.raises(NotFoundError) as caught:
            ask()
        assert all(store.url in caught.value.message for store in stores)
    with pytest.raises(NotFoundError):
        Failover([]).read(BLOB)


def test_damage_does_not_fall_through(stores: list[DirectoryStore]) -> None:
    for store in stores:
        store.put(BLOB, DATA)
    hexdigest = BLOB.parsed_digest.hex
    path = stores[0].root / "packs" / hexdigest[:2] / hexdigest
    path.unlink()
    path.write_bytes(DATA[:-1] + b"x")
    both = Failover(stores)
    with pytest.raises(CorruptError):
        both.read(BLOB)
    with pytest.raises(CorruptError):
        list(both.stream(BLOB))


def test_an_unreachable_store_is_passed_over_for_blobs_only(stores: list[DirectoryStore]) -> None:
    stores[1].put(BLOB, DATA)
    stores[1].tag(NAME, BLOB)
    stores[0].root.rename(stores[0].root.with_name("unmounted"))
    both = Failover(stores)
    assert both.has(BLOB)
    assert both.read(BLOB) == b"".join(both.stream(BLOB)) == DATA
    with pytest.raises(StoreError):  # the first may mean another blob by it
        both.resolve(NAME)


def test_what_only_an_unreachable_store_may_have_is_not_missing(
    stores: list[DirectoryStore],
) -> None:
    stores[0].root.rename(stores[0].root.with_name("unmounted"))
    both = Failover(stores)
    for ask in (lambda: both.has(BLOB), lambda: both.read(BLOB), lambda: next(both.stream(BLOB))):
        with pytest.raises(StoreError):
            ask()


def test_the_empty_blob_streams(stores: list[DirectoryStore]) -> None:
    empty = put_bytes(stores[1], b"")
    assert b"".join(Failover(stores).stream(empty)) == b""
