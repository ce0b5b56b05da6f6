"""Mounts from a store that is collected at the same time: found missing, or read whole."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from dsec_layers.api import collecting, managing, mounting
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.manifest import PACK_TYPE
from dsec_layers.model.reference import Reference
from dsec_layers.registry import tagging, transfer
from dsec_layers.registry.collect import Rules, collect
from dsec_layers.registry.directory import DirectoryStore
from tests.support.cli import BASE, Cli
from tests.support.packed import pack_files
from tests.support.profiles import NIGHTLY

TIMES = 200 if NIGHTLY else 5
DATA = random.Random(7).randbytes(2_000_000)
NAME = Reference.parse("toolkit/t:1")
NOW = Rules(grace_s=-1, workers=2)
MISSING, WHOLE = 3, 0

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.erofs,
    pytest.mark.overlay,
    pytest.mark.timeout(1800 if NIGHTLY else 120),
]


def read_mounted(bench: Workbench, pause_s: float, mounted: Event) -> None:
    """Mount, wait, and read: the exit status tells."""
    time.sleep(pause_s)
    try:
        with mounting.mounted(bench, NAME, read_only=True) as rootfs:
            mounted.set()
            time.sleep(pause_s)
            data = (rootfs.target / "data").read_bytes()
    except NotFoundError:
        raise SystemExit(MISSING) from None
    raise SystemExit(WHOLE if data == DATA else 1)


def untag_and_collect(root: Path, pause_s: float, mounted: Event | None) -> None:
    """Nothing but a lease protects the layer from now on."""
    store = DirectoryStore.open(root)
    if mounted is not None:
        mounted.wait()
    time.sleep(pause_s)
    tagging.remove_tag(store, NAME)
    collect(store, NOW)


@pytest.mark.parametrize("where", ["local", "remote"])
def test_at_random_moments(cli: Cli, where: str) -> None:
    kept = DirectoryStore.open(cli.folder / "kept", create=True)
    pack_files(cli.bench, NAME, {"data": DATA}, base=cli.bench.resolve(Reference.parse(BASE)))
    for reference in (NAME, Reference.parse(BASE)):
        transfer.copy(reference, cli.bench.local, kept)
    fork = multiprocessing.get_context("fork")
    seen = set()
    for number in range(TIMES):
        chance = random.Random(number)
        remote = cli.folder / f"remote-{number}"
        store = DirectoryStore.open(remote, create=True)
        tagging.remove_tag(cli.bench.local, NAME) if number == 0 else None
        collecting.gc(cli.bench, None, NOW)
        if where == "remote":
            transfer.copy(Reference.parse(BASE), kept, store)
        else:
            store = cli.bench.local
        transfer.copy(NAME, kept, store)
        bench = Workbench(cli.home, [store.url] if where == "remote" else [])
        if managing.client(bench).running():
            managing.client(bench).evict()
        mounted = fork.Event()
        before = mounted if number == TIMES - 1 else None  # once at least it comes too late
        reader = (bench, chance.random() * 0.1, mounted)
        collector = (store.root, chance.random() * 0.3, before)
        works = [
            fork.Process(target=read_mounted, args=reader),
            fork.Process(target=untag_and_collect, args=collector),
        ]
        for work in works:
            work.start()
        for work in works:
            work.join(120)
        assert works[0].exitcode in (MISSING, WHOLE)
        assert works[1].exitcode == 0
        seen.add(works[0].exitcode)
        if where == "remote":
            untag_here(cli.bench)
        shutil.rmtree(remote)
    assert WHOLE in seen
    packs = [blob for blob in cli.bench.local.blobs() if blob.media_type == PACK_TYPE]
    assert len(packs) <= 2


def untag_here(bench: Workbench) -> None:
    """A mount from a further store leaves the tag in the local one, with its metadata."""
    for reference, _ in list(bench.local.tags()):
        if reference == NAME:
            tagging.remove_tag(bench.local, NAME)
