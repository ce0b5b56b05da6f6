"""A daemon whose stores hang or fail: who is served, what is counted, what is logged."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.devices import DaemonDevices
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.registry.directory import DirectoryStore
from tests.support import lazy_daemon
from tests.support.devices import put_device
from tests.support.layers import file_tree, pack_tree
from tests.support.lazy import BLOCK, device_bytes
from tests.support.lazy_daemon import Faults
from tests.support.ports import free_port

pytestmark = [pytest.mark.root, pytest.mark.fuse]

MODULE = "tests.support.lazy_daemon"
CHUNK = 16 * BLOCK
DATA = device_bytes(64)  # 4 chunks
EIO = "Input/output error"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(lazy_daemon.__file__).parents[2]))
    monkeypatch.setenv("DSEC_STORE_DEADLINE_S", "1")
    monkeypatch.setenv("DSEC_STORE_THREADS", "4")


@pytest.fixture
def client(disk: Path) -> Iterator[DaemonClient]:
    made = DaemonClient(disk / "home", module=MODULE)
    yield made
    made.stop(force=True)


@pytest.fixture
def faults(store: DirectoryStore, disk: Path, client: DaemonClient) -> Iterator[Faults]:
    made = Faults(disk / "store")
    yield made
    made.close()


@pytest.fixture
def other(disk: Path) -> DirectoryStore:
    return DirectoryStore.open(disk / "other", create=True)


def read_cold(path: str, offset: int, length: int) -> bytes:
    """Read what the page cache does not hold."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)


def metrics(client: DaemonClient) -> dict[tuple[str, str], float]:
    """The samples of the daemon by name, and by state or kind where there is one."""
    return {
        (sample.name, sample.labels.get("state") or sample.labels.get("kind") or ""): sample.value
        for family in text_string_to_metric_families(client.metrics())
        for sample in family.samples
    }


def test_a_hung_store_holds_up_nobody_else_and_is_back_by_itself(
    client: DaemonClient, store: DirectoryStore, other: DirectoryStore, faults: Faults
) -> None:
    hung = put_device(store, DATA, [CHUNK] * 4, chunks_per_pack=1)
    fine = put_device(other, data := device_bytes(64, seed=1), [CHUNK] * 4)
    client.ensure()
    dead = client.attach(hung, [faults.url]).path
    alive = client.attach(fine, [other.url]).path
    faults.set("gate")
    with ThreadPoolExecutor(16) as pool:
        reads = [pool.submit(read_cold, dead, number % 4 * CHUNK, BLOCK) for number in range(16)]
        faults.await_arrivals()
        assert Path(alive).read_bytes() == data
        for read in reads:
            assert isinstance(read.exception(60), OSError)
    (stats,) = [each for each in client.stats().stores if each.url == faults.url]
    assert stats.state != "closed"
    assert stats.errors["timeout"] == stats.in_flight == stats.stuck
    assert 0 < stats.stuck <= 4
    with pytest.raises(OSError, match=EIO):
        read_cold(dead, 0, BLOCK)
    sampled = metrics(client)
    assert sampled["dsec_kernel_read_errors_total", "StoreError"] > 0
    assert sampled["dsec_kernel_read_seconds_count", ""] >= 17
    faults.open_gate()
    while [each.state for each in client.stats().stores if each.url == faults.url] != ["closed"]:
        time.sleep(0.02)
    assert Path(dead).read_bytes() == DATA
    assert metrics(client)["dsec_store_stuck", ""] == 0


def test_the_next_store_serves_what_the_first_fails_to(
    client: DaemonClient, store: DirectoryStore, other: DirectoryStore, faults: Faults
) -> None:
    layer = put_device(store, DATA, [CHUNK] * 4, chunks_per_pack=1)
    put_device(other, DATA, [CHUNK] * 4, chunks_per_pack=1)
    attached = client.ensure().attach(layer, [faults.url, other.url])
    faults.set("fail")
    assert Path(attached.path).read_bytes() == DATA
    assert client.stats().totals.errors == 0


@pytest.mark.erofs
def test_a_slow_read_is_logged_with_environment_and_file(
    client: DaemonClient,
    store: DirectoryStore,
    faults: Faults,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DSEC_SLOW_READ_S", "0.2")
    monkeypatch.setenv("DSEC_STORE_DEADLINE_S", "60")
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("DSEC_METRICS_LISTEN", address)
    files = {b"usr/lib/%d" % number: device_bytes(40, seed=number) for number in range(3)}
    packed = pack_tree(*file_tree(files), store, disk)
    layer = MountLayer(
        descriptor=packed.descriptor,
        manifest=packed.manifest,
        config=packed.config,
        blobs=packed.blobs,
        stores=(faults.url,),
    )
    manager = RootfsManager(disk / "home", DaemonDevices(client))
    target = disk / "mnt"
    rootfs = manager.mount([layer], target, name="env/demo:v1")
    try:
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            assert "dsec_mounts 1.0" in answer.read().decode()
        faults.set("gate")
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit((rootfs.target / "usr/lib/1").read_bytes)
            faults.await_arrivals()
            time.sleep(0.3)  # what is slow
            faults.open_gate()
            assert read.result(60) == files[b"usr/lib/1"]
        (line, *_) = slow_lines(disk / "home/run/daemon.log")
        assert line["environments"] == ["env/demo:v1"]
        assert "/usr/lib/1" in line["paths"]  # type: ignore[operator]
        assert line["layer"] == str(layer.digest)
        assert isinstance(line["seconds"], float)
        assert metrics(client)["dsec_chunks_in_flight", ""] >= 0
    finally:
        manager.unmount(target)
        manager.reconcile()


def slow_lines(log: Path) -> list[dict[str, object]]:
    """What the log says of slow reads, once it says something."""
    while True:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        found = [line for line in lines if line.get("event") == "slow-read"]
        if found:
            return found
        time.sleep(0.05)
