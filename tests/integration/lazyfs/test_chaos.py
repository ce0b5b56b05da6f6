"""Not one wrong byte, whatever befalls stores, daemon and cache; and nothing is left behind.

A run takes half a minute, one minute in CI and ten at night; DSEC_CHAOS_S and DSEC_CHAOS_SEED set
seconds and seed. What happened and when is printed when a run fails, its counts always.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.devices import DaemonDevices
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux import detached, mount
from dsec_layers.registry.directory import DirectoryStore
from tests.support import chaos_daemon
from tests.support.chaos import DEADLINE_S, Chaos, Fleet, descriptors, processes_of
from tests.support.layers import file_tree, pack_tree
from tests.support.leftovers import leftovers, mounts_below, settle
from tests.support.profiles import NIGHTLY

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.slow]

_IN_CI = os.environ.get("CI") == "true"
SECONDS = float(os.environ.get("DSEC_CHAOS_S", 600 if NIGHTLY else 60 if _IN_CI else 30))
SEED = int(os.environ.get("DSEC_CHAOS_SEED", random.randrange(1 << 32)))
READERS = ("sequential", "sequential", "random", "random", "mapped", "mapped")
QUIET_S = 8  # the part without deaths, over which descriptors are compared
MODULE = "tests.support.chaos_daemon"


@pytest.fixture
def client(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonClient]:
    """A daemon whose cache is a small file system."""
    monkeypatch.setenv("PYTHONPATH", str(Path(chaos_daemon.__file__).parents[2]))
    cache = disk / "home/cache/chunks"
    cache.mkdir(parents=True)
    mount.mount_tmpfs(cache, options="size=16m")
    made = DaemonClient(disk / "home", module=MODULE)
    yield made
    made.stop(force=True)
    mount.unmount(cache)


@pytest.fixture
def stores(disk: Path) -> list[Path]:
    return [disk / "store", disk / "second"]


@pytest.fixture
def layers(disk: Path, stores: list[Path]) -> list[MountLayer]:
    """Three layers of about 8 MiB in both stores, and the same files in `disk/plain`."""
    source, layers = random.Random(SEED), []
    (disk / "work").mkdir()
    opened = [DirectoryStore.open(path, create=True) for path in stores]
    for layer in ("base", "work", "tool"):
        files: dict[bytes, bytes] = {}
        for number in range(12):
            size = int(source.choice((1e2, 5e3, 7e4, 1e6, 2e6)) * source.uniform(0.5, 1))
            noise = source.randbytes(size // 2)
            files[f"{layer}/{number % 3}/{number}".encode()] = noise + noise[::-1]
        for path, data in files.items():
            plain = disk / "plain" / os.fsdecode(path)
            plain.parent.mkdir(parents=True, exist_ok=True)
            plain.write_bytes(data)
        tree = file_tree(files)
        packed, _ = (pack_tree(*tree, store, disk / "work") for store in opened)
        urls = tuple(f"chaos://{store}" for store in stores)
        layers.append(replace(packed, stores=urls))
    return layers


@pytest.mark.timeout(SECONDS + 300)
def test_every_byte_is_right_whatever_happens(
    client: DaemonClient,
    layers: list[MountLayer],
    stores: list[Path],
    disk: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    print(f"seed {SEED}, {SECONDS:.0f} s")
    home = disk / "home"
    manager = RootfsManager(home, DaemonDevices(client))
    roots = [disk / name for name in ("one", "two", "three")]
    fleet = Fleet(disk / "plain", roots, disk / "work", SEED)
    chaos = Chaos(
        client=client,
        manager=manager,
        layers=layers,
        stores=stores,
        cache=home / "cache/chunks",
        spare=disk / "spare",
        choose=random.Random(SEED),
        say=print,
    )
    with contextlib.ExitStack() as mounts:
        for number, root in enumerate(roots):
            order = [*layers[number:], *layers[:number]]
            mounts.enter_context(manager.mounted(order, root, read_only=number == 0))
        held = descriptors(holder_of(home))
        read_during(chaos, fleet, SECONDS)
        daemon = client.status().pid
        before = descriptors(daemon)
        read_during(chaos, fleet, QUIET_S, deaths=False)
        more = descriptors_beyond(daemon, before)
        with capsys.disabled():
            print(f"\n{counted(chaos, fleet, stores)}")

        assert fleet.wrong == []
        assert [each for each in fleet.failures if not chaos.excused(each[0], each[1])] == []
        assert fleet.slowest_s < DEADLINE_S
        assert more == []
        assert descriptors(holder_of(home)) == held
        for root in roots:  # nothing wrong has stayed in the page cache or the chunk cache
            for plain in (path for path in (disk / "plain").rglob("*") if path.is_file()):
                read = root / plain.relative_to(disk / "plain")
                assert read.read_bytes() == plain.read_bytes()
        assert chaos.did["kill"] + chaos.did["restart"] > 0
        assert fleet.counts["reads"] > 1000
    settle(manager, home)
    check_nothing_is_left(client, disk)


def read_during(chaos: Chaos, fleet: Fleet, seconds: float, *, deaths: bool = True) -> None:
    """Readers at work as long as things happen, and a while after."""
    try:
        for kind in READERS:
            fleet.start(kind)
        chaos.run(seconds, fleet, deaths=deaths)
    finally:
        fleet.stop()


def descriptors_beyond(pid: int, before: list[str]) -> list[str]:
    """What a process has open and had not before; a client may be about to go.

    A store keeps the packs open that it reads from, each once.
    """
    give_up = time.monotonic() + 10
    packs = Counter({path for path in descriptors(pid) if "/packs/" in path})
    while more := Counter(descriptors(pid)) - (Counter(before) | packs):
        if time.monotonic() > give_up:
            break
        time.sleep(0.1)
    return sorted(more.elements())


def holder_of(home: Path) -> int:
    (pid,) = (pid for pid, line in processes_of(home) if "holder.py" in line)
    return pid


def check_nothing_is_left(client: DaemonClient, disk: Path) -> None:
    home = disk / "home"
    assert client.stop()
    for pid, line in processes_of(home):  # a successor of the stopped one finds nothing to do
        assert "successor" in line
        assert detached.wait_for_exit(pid, 30)
    assert list((home / "cache/chunks/aside").iterdir()) == []
    assert list((home / "run/attached").iterdir()) == []
    assert mounts_below(disk) == [str(home / "cache/chunks")]
    assert not (disk / "spare").exists()
    sockets, locks = {"daemon.sock", "holder.sock"}, {"daemon.lock", "start.lock"}
    lasting = {"daemon.log", "attached.json", "blobs", "attached", "known", *sockets, *locks}
    left = {each for each in leftovers(home) if not each.startswith("known/")}
    assert left <= lasting


def counted(chaos: Chaos, fleet: Fleet, stores: list[Path]) -> str:
    """A line for people."""
    notes = [(mood, Path(f"{store}.{mood}")) for mood in chaos_daemon.MOODS for store in stores]
    befell = Counter[str]()
    for mood, path in notes:
        befell[mood] += path.stat().st_size if path.exists() else 0
    reads = " ".join(f"{name}={count}" for name, count in sorted(fleet.counts.items()))
    did = " ".join(f"{name.replace(' ', '-')}={count}" for name, count in sorted(chaos.did.items()))
    return (
        f"chaos seed={SEED} seconds={SECONDS:.0f}: {reads} slowest_s={fleet.slowest_s:.1f}\n"
        f"  events: {did}\n  store reads befallen: {dict(befell)}"
    )
