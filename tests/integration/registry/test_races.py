"""Pushes and collectors in processes, at random moments: nothing is lost, nothing dangles."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dsec_layers.api.packedbefore import PackedBefore
from dsec_layers.builder.pack import pack_layer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import layers, leases, tagging, transfer
from dsec_layers.registry.collect import Rules, collect
from dsec_layers.registry.condemned import Timing
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.sources.directory import walk
from tests.support.profiles import NIGHTLY
from tests.support.stores import put_environment, put_layer

TIMES = 200 if NIGHTLY else 5
BASE, WORK, ENV = (Reference.parse(name) for name in ("base/b:1", "workspace/w:1", "env/e:1"))
WITHOUT_GRACE = Rules(grace_s=-1, workers=2, timing=Timing(poll_s=0.01))
# For one that is killed, and waited for: it refuses itself when it stands still for half of that.
SOON_DEAD = Rules(grace_s=-1, workers=2, timing=Timing(announcement_s=6, poll_s=0.01))
FORK = multiprocessing.get_context("fork")

pytestmark = pytest.mark.timeout(1800 if NIGHTLY else 120)


@pytest.fixture
def source(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore.open(tmp_path / "source", create=True)
    chance = random.Random(1)
    packs = [chance.randbytes(50_000 * number) for number in range(1, 6)]
    base, work = put_layer(store, BASE, packs[:3]), put_layer(store, WORK, packs[2:])
    put_environment(store, ENV, [(Kind.BASE, str(BASE), base), (Kind.WORKSPACE, str(WORK), work)])
    return store


def started(work: Callable[[], object], chance: random.Random) -> multiprocessing.Process:
    """Begin `work` in a process of its own within a few hundredths of a second."""
    pause_s = chance.random() * 0.03

    def run() -> None:
        time.sleep(pause_s)
        work()

    process = FORK.Process(target=run)
    process.start()
    return process  # type: ignore[return-value]


def ended(process: multiprocessing.Process) -> int:
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def check_whole(store: DirectoryStore, *names: Reference) -> None:
    """Every tag leads to a whole closure, byte for byte, and these are among the tags."""
    tags = dict(store.tags())
    assert set(names) <= set(tags)
    for target in tags.values():
        for layer in layers.layer_descriptors(store, target):
            for blob in layers.load_layer(store, layer).manifest.blobs:
                for _ in store.stream(blob):
                    pass


def spoiled(source: DirectoryStore, folder: Path, chance: random.Random) -> DirectoryStore:
    """A store with the remains of a push that died: any of its blobs, none of them needed."""
    store = DirectoryStore.open(folder, create=True)
    for blob in source.blobs():
        if chance.random() < 0.7:
            store.put(blob, source.stream(blob))
    return store


def push(reference: Reference, source: DirectoryStore, folder: Path) -> None:
    transfer.copy(reference, source, DirectoryStore.open(folder), workers=2)


def gather(folder: Path, rules: Rules = WITHOUT_GRACE) -> None:
    collect(DirectoryStore.open(folder), rules)


def test_two_pushes_of_the_same_new_layer(source: DirectoryStore, tmp_path: Path) -> None:
    for number in range(TIMES):
        chance = random.Random(number)
        store = DirectoryStore.open(tmp_path / f"{number}", create=True)
        both = [started(partial(push, ENV, source, store.root), chance) for _ in range(2)]
        assert [ended(each) for each in both] == [0, 0]
        check_whole(store, ENV)
        assert not list(store.root.rglob("tmp-*"))


def test_pushes_beside_a_collector(source: DirectoryStore, tmp_path: Path) -> None:
    for number in range(TIMES):
        chance = random.Random(number)
        store = spoiled(source, tmp_path / f"{number}", chance)
        works = [
            partial(push, ENV, source, store.root),
            partial(push, WORK, source, store.root),
            partial(gather, store.root),
        ]
        assert [ended(each) for each in [started(work, chance) for work in works]] == [0, 0, 0]
        check_whole(store, ENV, WORK)


def test_builds_that_pack_nothing_beside_a_collector(tmp_path: Path) -> None:
    """The layer that is found has lost its tag: only the lease of the build keeps it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(random.Random(1).randbytes(200_000))

    def build(folder: Path) -> None:
        store = DirectoryStore.open(folder)
        with leases.hold(store, purpose="build") as held:
            before = PackedBefore(folder.parent / f"{folder.name}.records", store, held)
            layer = before.find("key") or packed(before)
            held.check()
            tagging.set_tag(store, WORK, layer.descriptor)

    def packed(before: PackedBefore) -> MountLayer:
        writer = leases.LeasedWriter(before.store, before.held)
        made = pack_layer(
            walk(tree), kind=WORK.kind, name=WORK.name, store=writer, work_dir=tmp_path
        )
        layer = MountLayer(made.manifest.descriptor(), made.manifest, made.config, before.store)
        before.remember("key", WORK, layer)
        return layer

    for number in range(TIMES):
        chance = random.Random(number)
        store = DirectoryStore.open(tmp_path / f"{number}", create=True)
        build(store.root)
        tagging.remove_tag(store, WORK)
        works = [partial(build, store.root), partial(gather, store.root)]
        assert [ended(each) for each in [started(work, chance) for work in works]] == [0, 0]
        check_whole(store, WORK)


def test_tags_that_move_beside_a_collector(source: DirectoryStore, tmp_path: Path) -> None:
    other = Reference.parse("env/other:1")

    def rename(folder: Path) -> None:
        store = DirectoryStore.open(folder)
        transfer.copy(ENV, store, store, name=other)
        tagging.remove_tag(store, ENV)

    for number in range(TIMES):
        chance = random.Random(number)
        store = spoiled(source, tmp_path / f"{number}", chance)
        push(ENV, source, store.root)
        works = [partial(rename, store.root), partial(gather, store.root)]
        assert [ended(each) for each in [started(work, chance) for work in works]] == [0, 0]
        check_whole(store, other)


def test_collectors_that_are_killed(source: DirectoryStore, tmp_path: Path) -> None:
    """At any moment: tags stay whole, a push goes on, and the next collector ends the work."""
    for number in range(TIMES):
        chance = random.Random(number)
        store = spoiled(source, tmp_path / f"{number}", chance)
        push(WORK, source, store.root)
        victim = started(partial(gather, store.root, SOON_DEAD), chance)
        pusher = started(partial(push, ENV, source, store.root), chance)
        time.sleep(chance.random() * 0.06)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid or 0, signal.SIGKILL)
        ended(victim)
        assert ended(pusher) == 0
        check_whole(store, ENV, WORK)
        tagging.remove_tag(store, ENV)
        gather(store.root)
        check_whole(store, WORK)
        manifest = layers.load_manifest(store, store.resolve(WORK))
        needed = {blob.digest for blob in manifest.blobs} | {store.resolve(WORK).digest}
        assert {blob.digest for blob in store.blobs()} == needed
