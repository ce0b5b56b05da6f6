"""The daemon, its holder and blobfs in the kernel: what a reader sees, whatever happens to them."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsec_layers.errors import (
    BusyError,
    CorruptError,
    DaemonError,
    DsecError,
    InvalidInputError,
    NotFoundError,
)
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.holder import PATIENCE
from dsec_layers.lazyfs.metadata import unpacked_metadata
from dsec_layers.linux import detached, mount
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.registry.directory import DirectoryStore
from tests.support import lazy_daemon
from tests.support.chaos import processes_of
from tests.support.damage import blob_path, flip_bit
from tests.support.devices import put_device
from tests.support.layers import file_tree, pack_tree
from tests.support.lazy import BLOCK, device_bytes
from tests.support.lazy_daemon import Faults

pytestmark = [pytest.mark.root, pytest.mark.fuse]

MODULE = "tests.support.lazy_daemon"
CHUNK = 16 * BLOCK
EIO = "Input/output error"
DATA = device_bytes(512)  # 32 chunks, 2 MiB


@pytest.fixture(autouse=True)
def module_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(lazy_daemon.__file__).parents[2]))


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
def layer(store: DirectoryStore) -> Descriptor:
    return put_device(store, DATA, [CHUNK] * 32, chunks_per_pack=8)


def read_direct(path: str, offset: int, length: int) -> bytes:
    """Read past the page cache; all or an error."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, length) as buffer:
            count = os.preadv(fd, [buffer], offset)
            return buffer[:count]
    finally:
        os.close(fd)


def read_when_back(path: str, length: int) -> bytes:
    """Read until the store is taken for one that works again."""
    while True:
        with contextlib.suppress(OSError):
            return read_direct(path, 0, length)
        time.sleep(0.02)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
    if number != signal.SIGKILL:  # it may take its time
        assert detached.wait_for_exit(pid, 30)


def holder_pid(home: Path) -> int:
    """The process that listens as holder of this home."""
    wanted = f"{home}/run"
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):  # ended just now
                continue
            if wanted.encode() in words and any(word.endswith(b"holder.py") for word in words):
                return int(folder.name)
    raise AssertionError("no holder")


def test_a_device_is_read_in_every_way(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    assert attached.digest == layer.digest
    assert attached.size_bytes == len(DATA)
    path = Path(attached.path)
    assert path.read_bytes() == DATA
    assert read_direct(attached.path, 0, len(DATA)) == DATA
    assert read_direct(attached.path, len(DATA) - BLOCK, 4 * BLOCK) == DATA[-BLOCK:]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == DATA

    status = path.stat()
    assert (status.st_size, status.st_mode) == (len(DATA), 0o100444)
    assert [each.name for each in path.parent.iterdir()] == [layer.parsed_digest.hex]
    assert path.parent.is_dir()
    assert os.statvfs(path.parent).f_blocks == len(DATA) // BLOCK
    assert not (path.parent / "other").exists()
    with pytest.raises(OSError, match="Read-only"):
        path.open("wb")

    stats = client.stats()
    assert stats.totals.fetched_bytes == len(DATA)
    assert stats.totals.errors == 0
    assert stats.layers[0].chunks == 32
    assert client.attach(layer, [store.url]) == attached
    assert client.status().layers == (attached,)


def test_a_device_that_ends_inside_a_block(client: DaemonClient, store: DirectoryStore) -> None:
    odd = put_device(store, DATA[: 2 * BLOCK + 100], [BLOCK, BLOCK, 100])
    attached = client.ensure().attach(odd, [store.url])
    assert attached.size_bytes == 3 * BLOCK
    assert Path(attached.path).read_bytes() == DATA[: 2 * BLOCK + 100].ljust(3 * BLOCK, b"\0")


def test_what_was_fetched_needs_no_store_any_more(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    assert read_direct(attached.path, 0, len(DATA)) == DATA
    client.restart()
    (disk / "store").rename(disk / "gone")
    client.restart()
    assert read_direct(attached.path, 0, len(DATA)) == DATA
    stats = client.stats()
    assert stats.totals.store_requests == 0
    assert stats.totals.cache_bytes == len(DATA)
    client.evict()
    assert client.stats().cache.memory_bytes == 0
    with pytest.raises(OSError, match=EIO):
        read_direct(attached.path, 0, BLOCK)


@pytest.mark.parametrize("fault", ["fail", "lie", "short"])
def test_a_bad_store_is_an_io_error_and_nothing_else(
    fault: str, client: DaemonClient, layer: Descriptor, faults: Faults
) -> None:
    attached = client.ensure().attach(layer, [faults.url])
    faults.set(fault)
    with pytest.raises(OSError, match=EIO):
        read_direct(attached.path, 0, CHUNK)
    with open(attached.path, "rb") as file, pytest.raises(OSError, match=EIO):
        file.read(CHUNK)
    assert client.stats().totals.errors > 0
    faults.set("")
    assert read_when_back(attached.path, CHUNK) == DATA[:CHUNK]
    assert Path(attached.path).read_bytes() == DATA


def test_a_damaged_cache_entry_is_fetched_again(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    read_direct(attached.path, 0, len(DATA))
    client.restart()
    entries = list((disk / "home/cache/chunks").glob("??/*"))
    assert len(entries) == 32
    for entry in entries[:3]:
        flip_bit(entry, 1000)
    assert read_direct(attached.path, 0, len(DATA)) == DATA
    stats = client.stats()
    assert stats.totals.corrupt_entries == 3
    assert stats.totals.fetched_chunks >= 3


def test_a_full_cache_disk_serves_uncached(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    cache = disk / "home/cache"
    cache.mkdir(parents=True)
    mount.mount_tmpfs(cache, options="size=512k")
    try:
        attached = client.ensure().attach(layer, [store.url])
        filler = cache / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(1 << 20))
        assert read_direct(attached.path, 0, len(DATA)) == DATA
        client.evict()  # which also waits for what is being written
        counts = client.stats().totals
        assert (counts.uncached_chunks, counts.fetched_chunks, counts.errors) == (32, 32, 0)

        filler.unlink()  # room for a part: older chunks make way for newer ones
        assert read_direct(attached.path, 0, len(DATA)) == DATA
        client.restart()
        assert list((cache / "chunks").glob("??/*")) != []
        assert read_direct(attached.path, 0, len(DATA)) == DATA
        assert client.stats().totals.errors == 0
    finally:
        client.stop(force=True)
        mount.unmount(cache)


def test_sixteen_readers_see_every_byte(
    client: DaemonClient, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSEC_CACHE_BYTES", str(len(DATA) // 2))  # chunks come and go
    source = random.Random(4)
    lengths = [source.randrange(1, 20 * BLOCK) for _ in range(1000)]
    attached = client.ensure().attach(put_device(store, DATA, lengths), [store.url])

    def read_around(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(40):
            offset = choose.randrange(len(DATA) // BLOCK) * BLOCK
            length = choose.randrange(1, 64) * BLOCK
            found = read_direct(attached.path, offset, length)
            assert found == DATA[offset : offset + length]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(read_around, range(16)))
    assert client.stats().totals.errors == 0


def test_cold_reads_do_not_hold_up_warm_ones(
    client: DaemonClient, layer: Descriptor, faults: Faults
) -> None:
    attached = client.ensure().attach(layer, [faults.url])
    warm = read_direct(attached.path, 0, CHUNK)
    faults.set("gate")
    # More of them than there are threads; in every other chunk, so that each is a request.
    offsets = [CHUNK * number for number in range(15, 32)]
    with ThreadPoolExecutor(len(offsets)) as pool:
        cold = [pool.submit(read_direct, attached.path, offset, BLOCK) for offset in offsets]
        faults.await_arrivals()
        assert read_direct(attached.path, 0, CHUNK) == warm == DATA[:CHUNK]
        assert client.status().layers == (attached,)
        assert not any(each.done() for each in cold)
        faults.open_gate()
        for offset, each in zip(offsets, cold, strict=True):
            assert each.result(60) == DATA[offset : offset + BLOCK]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_read_fails_when_the_daemon_is_killed(
    number: int, client: DaemonClient, layer: Descriptor, faults: Faults
) -> None:
    attached = client.ensure().attach(layer, [faults.url])
    first = client.status()
    with open(attached.path, "rb", buffering=0) as file:  # stays open over the daemon's death
        faults.set("gate")
        offsets = range(0, len(DATA), 4 * CHUNK)
        with ThreadPoolExecutor(16) as pool:
            reads = [pool.submit(os.pread, file.fileno(), CHUNK, offset) for offset in offsets]
            reads += [pool.submit(read_direct, attached.path, each, CHUNK) for each in offsets]
            faults.await_arrivals()
            kill(first.pid, number)
            reads += [pool.submit(os.pread, file.fileno(), CHUNK, 0)]  # nobody is there
            faults.open_gate()
            second = client.ensure().status()
            results = [read.result(60) for read in reads]
    assert results == [DATA[offset : offset + CHUNK] for offset in (*offsets, *offsets, 0)]
    assert second.pid != first.pid
    assert second.generation == first.generation + 1
    assert second.layers == first.layers
    assert client.stats().totals.errors == 0


def test_many_deaths_under_load(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    done = threading.Event()

    def read_on(seed: int) -> int:
        choose, count = random.Random(seed), 0
        while not done.is_set() or count == 0:
            offset = choose.randrange(32) * CHUNK
            assert read_direct(attached.path, offset, CHUNK) == DATA[offset : offset + CHUNK]
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read_on, seed) for seed in range(4)]
        try:
            for _ in range(5):
                kill(client.status().pid)
                client.ensure()
        finally:
            client.ensure()
            done.set()
        assert all(reader.result(60) > 0 for reader in readers)
    assert client.status().generation == 6


def test_a_restart_loses_no_read(client: DaemonClient, layer: Descriptor, faults: Faults) -> None:
    attached = client.ensure().attach(layer, [faults.url])
    faults.set("gate")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(read_direct, attached.path, 0, CHUNK)
        faults.await_arrivals()
        client.restart()
        faults.open_gate()
        assert read.result(60) == DATA[:CHUNK]


@pytest.mark.erofs
def test_a_layer_mounted_by_the_kernel_outlives_the_daemon(
    client: DaemonClient, store: DirectoryStore, faults: Faults, disk: Path
) -> None:
    files = {b"f/%d" % number: device_bytes(40, seed=number) for number in range(8)}
    layer = pack_tree(*file_tree(files), store, disk)
    attached = client.ensure().attach(layer.descriptor, [faults.url])
    image = disk / "image"
    image.write_bytes(b"".join(unpacked_metadata(layer)))
    target = disk / "mnt"
    target.mkdir()
    mount.mount_erofs(image, target, device=Path(attached.path))
    try:
        faults.set("gate")
        with ThreadPoolExecutor(8) as pool:
            paths = [target / os.fsdecode(name) for name in files]
            reads = [pool.submit(path.read_bytes) for path in paths]
            faults.await_arrivals()
            kill(client.status().pid)
            faults.open_gate()
            client.ensure()
            assert [read.result(60) for read in reads] == list(files.values())
    finally:
        mount.unmount(target)
    assert client.stats().totals.errors == 0


def test_a_lost_connection_is_replaced(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    with open(attached.path, "rb", buffering=0) as old:
        kill(holder_pid(disk / "home"))
        assert os.pread(old.fileno(), BLOCK, 0) == DATA[:BLOCK]  # the daemon has it too
        pid = client.status().pid
        kill(pid)
        assert detached.wait_for_exit(pid, 30)
        with pytest.raises(OSError, match="not connected"):
            os.pread(old.fileno(), BLOCK, 31 * CHUNK)
        assert client.ensure().status().layers == ()  # what was mounted on them is dead
        assert client.status().generation == 1
        assert client.attach(layer, [store.url]) == attached
        assert read_direct(attached.path, 0, len(DATA)) == DATA


@pytest.mark.parametrize("lazy", [False, True])
def test_a_mount_that_was_taken_away_is_made_anew(
    lazy: bool, client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    pid = client.status().pid
    with open(attached.path if lazy else os.devnull, "rb"):  # keeps it alive, out of sight
        mount.unmount(disk / "home/run/blobs", lazy=lazy)
        if lazy:
            client.restart()
        else:
            assert detached.wait_for_exit(pid, 30)  # a daemon without a connection is none
            client.ensure()
        assert client.attach(layer, [store.url]) == attached
        assert read_direct(attached.path, 0, len(DATA)) == DATA


def test_detached_layers_are_gone_and_come_back_as_they_were(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    other = put_device(store, DATA[:CHUNK], [CHUNK])
    attached = client.ensure().attach(layer, [store.url])
    node = Path(attached.path).stat().st_ino
    with open(attached.path, "rb") as file:
        assert client.detach([layer.parsed_digest])
        assert not client.detach([layer.parsed_digest])
        with pytest.raises(OSError, match=EIO):
            os.pread(file.fileno(), BLOCK, 20 * CHUNK)
        assert client.status().layers == ()
        assert not any((disk / "home/run/attached").rglob("*"))
        assert Path(client.attach(other, [store.url]).path).stat().st_ino != node
        assert client.attach(layer, [store.url]) == attached
        assert Path(attached.path).stat().st_ino == node
        assert os.pread(file.fileno(), BLOCK, 20 * CHUNK) == DATA[20 * CHUNK :][:BLOCK]


def test_stores_given_later_are_asked_first(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, faults: Faults, disk: Path
) -> None:
    attached = client.ensure().attach(layer, [faults.url])
    faults.set("fail")
    client.attach(layer, [store.url])
    assert read_direct(attached.path, 0, CHUNK) == DATA[:CHUNK]
    client.restart()
    assert read_direct(attached.path, 0, len(DATA)) == DATA


def test_layers_that_cannot_be_attached(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore
) -> None:
    client.ensure()
    absent = Descriptor.of(b"absent", OCI_MANIFEST)
    with pytest.raises(NotFoundError, match=absent.digest):
        client.attach(absent, [store.url])
    with pytest.raises(InvalidInputError, match="nosuch"):
        client.attach(layer, ["nosuch:///x"])
    flip_bit(blob_path(store, layer), 20)
    with pytest.raises(CorruptError):
        client.attach(layer, [store.url])
    assert client.status().layers == ()


def test_one_daemon_for_a_home(client: DaemonClient, disk: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: DaemonClient(disk / "home", module=MODULE).ensure(), range(4)))
    pid = client.status().pid
    second = subprocess.run(
        [sys.executable, "-m", MODULE, "--home", str(disk / "home")], capture_output=True, text=True
    )
    assert second.returncode == 1
    assert "another daemon runs" in second.stderr
    assert client.ensure().status().pid == pid


def test_stop_refuses_while_layers_are_served(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    assert not client.stop()
    client.ensure().attach(layer, [store.url])
    with pytest.raises(BusyError, match="1 layer"):
        client.stop()
    assert client.running()
    client.detach([layer.parsed_digest])
    holder = holder_pid(disk / "home")
    assert client.stop()
    assert detached.wait_for_exit(holder, 30)
    assert not client.running()
    assert mount.mounted_at(disk / "home/run/blobs") is None
    with pytest.raises(DaemonError, match="cannot be reached"):
        client.status()
    client.ensure().attach(layer, [store.url])
    assert client.stop(force=True)


def test_stop_does_not_abandon_the_layers_of_a_killed_daemon(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    pid = client.status().pid
    kill(pid)
    assert detached.wait_for_exit(pid, 30)
    with pytest.raises(BusyError):  # of the dead one, or already of its successor
        client.stop()
    assert client.ensure().status().layers == (attached,)


def test_a_daemon_that_does_not_come_up_says_why(disk: Path) -> None:
    broken = DaemonClient(disk / "home", module="tests.support.no_such_daemon")
    try:
        with pytest.raises(DaemonError, match="no_such_daemon"):
            broken.ensure()
    finally:
        broken.stop()


def test_a_home_with_a_long_name(disk: Path, layer: Descriptor, store: DirectoryStore) -> None:
    home = disk / ("long" * 50) / ("name" * 20)
    client = DaemonClient(home, module=MODULE)
    try:
        attached = client.ensure().attach(layer, [store.url])
        assert Path(attached.path).read_bytes() == DATA
    finally:
        client.stop(force=True)


def test_state_that_cannot_be_read_is_forgotten(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    client.ensure().attach(layer, [store.url])
    (disk / "home/run/attached.json").write_bytes(b"{")
    kill(client.status().pid)
    assert client.ensure().status().layers == ()
    assert Path(client.attach(layer, [store.url]).path).read_bytes() == DATA


def test_no_file_gets_the_bytes_of_another_when_the_state_is_lost(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    other = put_device(store, device_bytes(512, seed=1), [CHUNK] * 32)
    attached = client.ensure().attach(layer, [store.url])
    client.attach(other, [store.url])
    with open(attached.path, "rb", buffering=0) as file:
        (disk / "home/run/attached.json").write_bytes(b"{")
        kill(client.status().pid)
        client.ensure().attach(other, [store.url])
        with pytest.raises(OSError, match=EIO):
            os.pread(file.fileno(), BLOCK, 0)
        client.attach(layer, [store.url])
        assert os.pread(file.fileno(), BLOCK, 0) == DATA[:BLOCK]


def test_a_killed_daemon_is_missed_and_succeeded_by_itself(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    for _ in range(2):
        kill(client.status().pid)
        assert read_direct(attached.path, 0, len(DATA)) == DATA  # waits for the successor
    assert client.status().generation == 3


def test_a_daemon_that_served_nothing_is_not_missed(client: DaemonClient) -> None:
    pid = client.ensure().status().pid
    kill(pid)
    assert detached.wait_for_exit(pid, 30)
    client.succeed()
    assert not client.running()


@pytest.fixture
def full_disk(disk: Path) -> Iterator[Path]:
    """A small ext4, and the name of a file that fills it when it is written."""
    image, target = disk / "image", disk / "small"
    target.mkdir()
    with image.open("wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, target], check=True)
    yield target
    mount.unmount(target, lazy=True)


def fill(path: Path) -> None:
    """Write until not one more byte fits."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_daemon_is_succeeded_on_a_full_disk(
    full_disk: Path, layer: Descriptor, store: DirectoryStore
) -> None:
    client = DaemonClient(full_disk / "home", module=MODULE)
    try:
        attached = client.ensure().attach(layer, [store.url])
        client.evict()
        fill(full_disk / "filler")
        assert os.statvfs(full_disk).f_bavail == 0
        kill(client.status().pid)
        assert client.ensure().status().layers == (attached,)
        assert read_direct(attached.path, 0, len(DATA)) == DATA
        assert client.detach([layer.parsed_digest])
        assert client.status().layers == ()
    finally:
        client.stop(force=True)


def test_a_home_that_was_emptied_begins_anew(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    attached = client.ensure().attach(layer, [store.url])
    old = [client.status().pid, holder_pid(disk / "home")]
    for path in (disk / "home/run").iterdir():
        if path.is_file() or path.is_socket():  # what `rm -r` gets at
            path.unlink()
    assert client.ensure().attach(layer, [store.url]) == attached
    assert all(detached.wait_for_exit(pid, 30) for pid in old)
    kill(client.status().pid)
    assert client.ensure().status().generation == 2  # its holder has not been taken for the old
    assert read_direct(attached.path, 0, len(DATA)) == DATA


def test_requests_that_are_none(client: DaemonClient, disk: Path) -> None:
    from dsec_layers.lazyfs import protocol
    from dsec_layers.linux import local_socket

    client.ensure()
    with local_socket.connect(disk / "home/run", "daemon.sock") as connection:
        answers = connection.makefile("rb")
        connection.sendall(b"nonsense\n")
        with pytest.raises(DsecError, match="not a request"):
            protocol.decode_answer(answers.readline(), protocol.Done)
        connection.sendall(protocol.encode_request(protocol.GetStatus()))
        assert protocol.decode_answer(answers.readline(), protocol.Status).layers == ()
        answers.close()


def test_a_daemon_that_nobody_succeeds_is_not_waited_for_without_end(
    client: DaemonClient,
    layer: Descriptor,
    store: DirectoryStore,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PATIENCE, "1")
    client.hold()  # with nobody who would start a successor
    attached = client.ensure().attach(layer, [store.url])
    holder = holder_pid(disk / "home")
    kill(client.status().pid)
    with pytest.raises(OSError):  # noqa: PT011 - the kernel has several words for it
        read_direct(attached.path, 0, BLOCK)
    assert detached.wait_for_exit(holder, 60)
    with pytest.raises(OSError):  # noqa: PT011
        os.stat(attached.path)
    assert client.recorded_layers() == [layer.parsed_digest.hex]
    assert client.ensure().attach(layer, [store.url]) == attached
    assert holder_pid(disk / "home") != holder
    assert read_direct(attached.path, 0, len(DATA)) == DATA


def test_a_holder_waits_for_a_daemon_as_long_as_it_is_told(
    client: DaemonClient, layer: Descriptor, store: DirectoryStore, disk: Path
) -> None:
    client.hold()
    attached = client.ensure().attach(layer, [store.url])
    holder = holder_pid(disk / "home")
    kill(client.status().pid)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_direct, attached.path, 0, len(DATA))
        client.ensure()
        assert reading.result(60) == DATA
    assert holder_pid(disk / "home") == holder


def test_daemons_that_die_at_once_are_nobodys_successors(
    client: DaemonClient,
    layer: Descriptor,
    store: DirectoryStore,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many come: none lasts, and whoever waits is told so in the end."""
    monkeypatch.setenv(PATIENCE, "3")
    attached = client.ensure().attach(layer, [store.url])
    holder = holder_pid(disk / "home")
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(detached.wait_for_exit, holder, 60)
        while not gone.done():
            for pid, line in processes_of(disk / "home"):
                if f"-m {MODULE} " in line:
                    with contextlib.suppress(ProcessLookupError):
                        kill(pid)
            time.sleep(0.05)
        assert gone.result()
    with pytest.raises(OSError):  # noqa: PT011
        read_direct(attached.path, 0, BLOCK)
