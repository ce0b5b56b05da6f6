"""Reading from afar, and many layers on one node; `bench read` has what is local.

Afar is a store behind a shaper in the daemon: 20 ms a request, 1 GB/s (10**9 bytes) for all
together. Every run has a home of its own, so a fresh daemon, nothing cached and no trace of earlier
accesses. The file of 512 MiB is that of `bench read`. Bandwidth is bytes read by fio over its time.
With few cores their speed is the bound, not the link, and whatever else the machine does. So two
other limits are told beside the link, and the processor time of all that takes part:

- `of_plain`: the same is done plainly, in the same turns. Threads fetch the same bytes over the
  same line, unpack and check them and write them to one local file, then fio reads that.
- `of_processors`: what all processors would give if they did nothing but what ours takes. Less than
  1 is time that others took, or in which processors had nothing to do.

Homes stay until the end, for ext4 looks long for an inode while many have just been deleted; their
pages do not. Memory is touched first: that of a virtual machine may cost ten times as much to write
to for the first time.

1,000 layers of one small file each are mounted as 10 environments of 100, one after the other: for
the first time, which fetches and unpacks their metadata, and once more. Memory is that of the
daemon when they are mounted and 50,000 chunks of 4 KiB have been read through it into its cache.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import shaper
from bench.read import FILE_BYTES, REFERENCE, make_tree
from bench.report import Metric, Report
from dsec_layers.api import contents, importing, managing, mounting
from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.lazyfs.grouping import grouped
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.registry.urls import PLUGINS_VARIABLE, open_store
from tests.support.devices import put_device
from tests.support.layers import file_tree, pack_tree

LATENCY_MS, LINK_MB_S = 20, 1000
READERS = 32
RUNS = 5
PLAIN_REQUEST_BYTES = 16 << 20  # unpacked: one for each reader
TOUCHED_BYTES = 4 << 30
MAP_POPULATE = 0x8000
LAYERS, LAYERS_EACH = 1000, 100
CHUNKS, CHUNK_BYTES = 50_000, 4096
ONE_READER_MB_S, SHARE_OF_LINK, MOUNT_S, DAEMON_MIB = 250.0, 0.8, 1.5, 150.0


def main() -> Report:
    """Measure both."""
    os.environ[PLUGINS_VARIABLE] = shaper.__name__
    os.environ["PYTHONPATH"] = str(Path(shaper.__file__).parent.parent)
    with tempfile.TemporaryDirectory(prefix="bench-lazyfs-", dir="/var/tmp") as name:
        folder = Path(name)
        metrics = from_afar(folder) | many_layers(folder)
    return Report("lazyfs", metrics)


def from_afar(folder: Path) -> dict[str, Metric]:
    """One reader, many, and the same plainly, in turns."""
    near = Workbench(folder / "near")
    make_tree(folder / "tree")
    importing.import_(near, str(folder / "tree"), REFERENCE)
    mmap.mmap(-1, TOUCHED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE).close()
    ones: list[_Run] = []
    manies: list[_Run] = []
    plains: list[_Run] = []
    for _ in range(RUNS):
        ones.append(_cold_read(folder, near, 1))
        manies.append(_cold_read(folder, near, READERS))
        plains.append(_plain_read(folder, near))
    one, many, plain = (statistics.median(_speeds(runs)) for runs in (ones, manies, plains))
    full = [FILE_BYTES / 1e6 * len(os.sched_getaffinity(0)) / run.cpu_s for run in manies]
    peaks = [run.peak_mib for run in manies]
    name = f"remote_{READERS}_readers"
    return {
        "remote_one_reader_mb_s": Metric(one, ONE_READER_MB_S, "higher", _speeds(ones)),
        f"{name}_of_link": Metric(many / LINK_MB_S, SHARE_OF_LINK, "higher", _speeds(manies)),
        f"{name}_of_plain": Metric(many / plain, None, "higher", _speeds(plains)),
        f"{name}_of_processors": Metric(many / statistics.median(full), None, "higher", full),
        f"{name}_cpu_s": _cpu(manies),
        "remote_plain_cpu_s": _cpu(plains),
        f"{name}_daemon_mib": Metric(max(peaks), DAEMON_MIB, "lower", peaks),
    }


class _Run(NamedTuple):
    """Speed, processor time of all that took part, and the most memory that the daemon had."""

    mb_s: float
    cpu_s: float
    peak_mib: float = 0.0


def _speeds(runs: list[_Run]) -> list[float]:
    return [run.mb_s for run in runs]


def _cpu(runs: list[_Run]) -> Metric:
    seconds = [run.cpu_s for run in runs]
    return Metric(statistics.median(seconds), None, "lower", seconds)


def _afar(near: Workbench) -> str:
    return f"shaped+{near.local.url}?latency_ms={LATENCY_MS}&mb_s={LINK_MB_S}"


def _cold_read(folder: Path, near: Workbench, readers: int) -> _Run:
    """So many readers, each of its own part of the file."""
    far = Workbench(Path(tempfile.mkdtemp(prefix="home-", dir=folder)), [_afar(near)])
    try:
        with mounting.mounted(far, REFERENCE, folder / "far", read_only=True) as rootfs:
            pid = managing.client(far).status().pid
            before = _cpu_s(pid)
            speed = _fio(rootfs.target / "data", readers)
            return _Run(speed, _cpu_s(pid) - before, _status_mib(pid, "VmHWM"))
    finally:
        managing.client(far).stop(force=True)
        _forget(far.home.chunks.glob("*/*"))


def _cpu_s(pid: int) -> float:
    """Processor time of a process, and of the children of this one that have ended."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return own + children.ru_utime + children.ru_stime


def _forget(files: Iterable[Path]) -> None:
    """Let go of their pages, so that the next run need not touch new memory."""
    os.sync()
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _plain_read(folder: Path, near: Workbench) -> _Run:
    """Fetching, unpacking, checking, writing, and reading what was written."""
    layer = near.stack(REFERENCE).layers[0]
    table, packs = contents.table_of(layer), layer.manifest.packs
    store = open_store(_afar(near))
    fd, name = tempfile.mkstemp(prefix="plain-", dir=folder)

    def fetch(group: list[int]) -> None:
        chunks = [table[index] for index in group]
        start = chunks[0].pack_offset
        length = chunks[-1].pack_offset + chunks[-1].stored_length - start
        data = memoryview(store.read(packs[chunks[0].pack], start, length))
        for chunk in chunks:
            stored = data[chunk.pack_offset - start :][: chunk.stored_length]
            os.pwrite(fd, decode_chunk(stored, chunk.length, chunk.digest), chunk.device_offset)

    before, began = _cpu_s(os.getpid()), time.perf_counter()
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(fetch, grouped(enumerate(table), PLAIN_REQUEST_BYTES)))
    os.close(fd)
    seconds = time.perf_counter() - began + FILE_BYTES / 1e6 / _fio(Path(name), READERS)
    run = _Run(FILE_BYTES / 1e6 / seconds, _cpu_s(os.getpid()) - before)
    _forget([Path(name)])
    return run


def _fio(file: Path, readers: int) -> float:
    part = FILE_BYTES // readers
    command = [
        *("fio", "--name=read", f"--filename={file}", "--rw=read", "--bs=1M", "--readonly"),
        *("--ioengine=psync", "--invalidate=0", "--thread", f"--numjobs={readers}"),
        *(f"--size={part}", f"--offset_increment={part}", "--group_reporting"),
        "--output-format=json",
    ]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return float(told["jobs"][0]["read"]["bw"]) * 1024 / 1e6


def many_layers(folder: Path) -> dict[str, Metric]:
    """Time to mount, and memory."""
    bench = Workbench(folder / "many")
    with ThreadPoolExecutor(32) as pool:  # every blob is synced to disk
        layers = list(pool.map(partial(_small_layer, bench), range(LAYERS)))
    noise = random.Random(5).randbytes(CHUNKS * CHUNK_BYTES)
    device = put_device(bench.local, noise, [CHUNK_BYTES] * CHUNKS)
    daemon = managing.client(bench).ensure()
    try:
        empty_mib = _resident_mib(daemon.status().pid)
        first_s: list[float] = []
        again_s: list[float] = []
        for _ in range(RUNS):
            for seconds in (first_s, again_s):
                with _timed_mount(bench, layers, seconds):
                    pass
            for image in (bench.home.root / "metadata").iterdir():
                image.unlink()
        with _timed_mount(bench, layers, []):
            mounted_mib = _resident_mib(daemon.status().pid)
            attached = daemon.attach(device, [bench.local.url])
            if Path(attached.path).read_bytes() != noise:
                raise RuntimeError("what was read is not what was packed")
            full_mib = _resident_mib(daemon.status().pid)
    finally:
        managing.client(bench).stop(force=True)
    first, again = statistics.median(first_s), statistics.median(again_s)
    return {
        "mount_1000_layers_s": Metric(again, MOUNT_S, "lower", again_s),
        "mount_1000_layers_first_s": Metric(first, None, "lower", first_s),
        "daemon_mib": Metric(full_mib, DAEMON_MIB, "lower"),
        "daemon_mib_layers_mounted": Metric(mounted_mib, None, "lower"),
        "daemon_mib_idle": Metric(empty_mib, None, "lower"),
    }


def _small_layer(bench: Workbench, number: int) -> MountLayer:
    tree = file_tree({b"file": b"%d" % number * 1000})
    with tempfile.TemporaryDirectory() as work:
        return pack_tree(*tree, bench.local, Path(work), name=f"n{number}")


@contextlib.contextmanager
def _timed_mount(
    bench: Workbench, layers: list[MountLayer], seconds: list[float]
) -> Iterator[None]:
    manager = managing.manager(bench)
    began = time.perf_counter()
    with contextlib.ExitStack() as mounts:
        for start in range(0, LAYERS, LAYERS_EACH):
            stack = layers[start : start + LAYERS_EACH]
            rootfs = mounts.enter_context(manager.mounted(stack, read_only=True))
        seconds.append(time.perf_counter() - began)
        if (rootfs.target / "file").read_bytes() != b"%d" % (LAYERS - 1) * 1000:
            raise RuntimeError("what was read is not what was packed")
        yield


def _resident_mib(pid: int) -> float:
    return _status_mib(pid, "VmRSS")


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has ended")
