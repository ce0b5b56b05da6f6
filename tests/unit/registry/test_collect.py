"""Collection removes what no tag reaches, late, and nothing when in doubt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import layers, transfer
from dsec_layers.registry.collect import Collected, Rules, collect
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes, put_environment, put_layer

BASE, WORK = Reference.parse("base/debian:12"), Reference.parse("workspace/a:v1")
ENV = Reference.parse("env/demo:v1")
PACKS = [b"of base", b"of both", b"of work"]


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore.open(tmp_path / "store", create=True)
    base, work = put_layer(store, BASE, PACKS[:2]), put_layer(store, WORK, PACKS[1:])
    put_environment(store, ENV, [(Kind.BASE, str(BASE), base), (Kind.WORKSPACE, str(WORK), work)])
    for path in (path for path in store.root.rglob("*/*/*") if path.is_file()):
        os.utime(path, (1000, 1000))
    return store


def gather(store: DirectoryStore, grace_s: float = 24 * 3600) -> Collected:
    return collect(store, Rules(grace_s=grace_s))


def digests(store: DirectoryStore) -> set[str]:
    return {blob.digest for blob in store.blobs()}


def test_what_is_tagged_stays(store: DirectoryStore) -> None:
    before = digests(store)
    assert gather(store).blobs == 0
    store.untag(BASE)
    assert gather(store).blobs == 0, "the environment still leads to it"
    assert digests(store) == before


def test_what_no_tag_reaches_goes(store: DirectoryStore) -> None:
    store.untag(ENV)
    store.untag(WORK)
    base = store.resolve(BASE)
    used = {base.digest, *(blob.digest for blob in layers.load_manifest(store, base).blobs)}
    gone = digests(store) - used
    assert gather(store).blobs == len(gone)
    assert digests(store) == used
    store.untag(BASE)
    assert gather(store, -1).bytes > 0
    assert digests(store) == set()


def test_what_a_layer_was_built_on_stays(tmp_path: Path) -> None:
    """A tag moves on with the next build, and leaves the layers that stand on the last one."""
    store = DirectoryStore.open(tmp_path / "store", create=True)
    base = put_layer(store, BASE, PACKS[:1])
    low = put_layer(store, Reference.parse("toolkit/low"), PACKS[1:2], base=base.digest)
    put_layer(store, WORK, PACKS[1:], base=low.digest)
    before = digests(store)
    store.untag(BASE)
    store.untag(Reference.parse("toolkit/low"))
    assert gather(store, -1).blobs == 0
    store.delete(base)  # it may lie in another store
    assert gather(store, -1).blobs == 3 + 1
    put_layer(store, BASE, [b"alone"], base=low.digest)
    assert gather(store, -1).blobs == 0
    store.untag(BASE)
    store.untag(WORK)
    gather(store, -1)
    assert digests(store) < before
    assert digests(store) == set()


def test_what_was_put_or_asked_for_within_the_grace_stays(store: DirectoryStore) -> None:
    for reference in (ENV, BASE, WORK):
        store.untag(reference)
    fresh = put_bytes(store, b"fresh")
    asked = next(store.blobs())
    assert store.has(asked)
    gather(store)
    assert digests(store) == {fresh.digest, asked.digest}


def test_a_layer_whose_packs_are_elsewhere_is_whole_enough(
    store: DirectoryStore, tmp_path: Path
) -> None:
    near = DirectoryStore.open(tmp_path / "near", create=True)
    transfer.copy(ENV, store, near, metadata_only=True)
    before = digests(near)
    assert gather(near, -1).blobs == 0
    assert digests(near) == before


@pytest.mark.parametrize("damage", ["missing", "corrupt", "reference"])
def test_in_doubt_nothing_goes(store: DirectoryStore, damage: str) -> None:
    target = store.resolve(WORK)
    store.untag(BASE)
    digest = target.parsed_digest.hex
    if damage == "missing":
        store.delete(target)
    elif damage == "corrupt":
        (store.root / "blobs" / digest[:2] / digest).unlink()
        (store.root / "blobs" / digest[:2] / digest).write_bytes(b"x" * target.size)
    else:
        (path,) = (store.root / "refs/env").rglob("@*.json")
        path.unlink()
        path.write_bytes(b"{")
    put_bytes(store, b"unreachable")
    before = digests(store)
    with pytest.raises((CorruptError, NotFoundError)):
        gather(store, -1)
    assert digests(store) == before
