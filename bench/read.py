"""Reading through a lazily mounted rootfs, against the same tree in a plain local EROFS image.

The tree is one file of 512 MiB. The limit is its EROFS metadata over a data device that is a plain
local file, without FUSE, made a rootfs by an overlay: what pulling everything first would give.
Warm means in the page cache. Cold means that neither side has a page in memory: the limit reads its
device from disk, we read chunks of the local cache, with a daemon that has just started.

The metrics that end in `_bare` compare with the same image without the overlay. Reads of 4 KiB from
the page cache take about a microsecond, of which overlayfs itself costs a tenth; whatever is
layered and writable pays that, so they have no goal.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.report import Metric, Report, interleaved, ratio
from dsec_layers.api import contents, importing, managing, mounting
from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.linux import mount
from dsec_layers.model.reference import Reference

FILE_BYTES = 512 << 20
REFERENCE = Reference.parse("base/bench/read:v1")
WARM_GOAL = 0.97
COLD = {  # how, block, goal
    "cold_sequential_cached": ("read", "1M", 0.4),
    "cold_random_64k_cached": ("randread", "64k", 0.5),
    "cold_random_4k_cached": ("randread", "4k", 0.35),
}
_PIECE = 1 << 20
WARM_RUNS = 11
COLD_RANDOM_S = 1
WARM_S = 1  # the page cache answers so fast that one pass would measure noise


def main() -> Report:
    """Measure bandwidth and random reads, ours over the limit."""
    with tempfile.TemporaryDirectory(prefix="bench-read-", dir="/var/tmp") as name:
        folder = Path(name)
        bench = Workbench(folder / "home")
        make_tree(folder / "tree")
        importing.import_(bench, str(folder / "tree"), REFERENCE)
        layer = bench.stack(REFERENCE).layers[0]
        _write_device(layer, folder / "device")
        try:
            return Report("read", _measure(bench, layer, folder))
        finally:
            managing.client(bench).stop(force=True)


def _measure(bench: Workbench, layer: MountLayer, folder: Path) -> dict[str, Metric]:
    metrics = {}
    with _limit(bench, layer, folder) as (bare, limit), _lazy(bench, folder) as lazy:
        for file in (limit, lazy):
            _fio(file, "read", "1M")
        for name, how, block in (
            ("warm_sequential", "read", "1M"),
            ("warm_random_4k", "randread", "4k"),
        ):
            for suffix, other, goal in (("", limit, WARM_GOAL), ("_bare", bare, None)):
                pair = interleaved(
                    lambda how=how, block=block: _fio(lazy, how, block, WARM_S),  # type: ignore[misc]
                    lambda how=how, block=block, other=other: _fio(other, how, block, WARM_S),  # type: ignore[misc]
                    WARM_RUNS,
                )
                metrics[name + suffix] = _metric(*pair, goal)
    for name, (how, block, goal) in COLD.items():
        cold = interleaved(
            lambda how=how, block=block: _cold(bench, layer, folder, how, block, lazy=True),  # type: ignore[misc]
            lambda how=how, block=block: _cold(bench, layer, folder, how, block, lazy=False),  # type: ignore[misc]
        )
        metrics[name] = _metric(*cold, goal)
    return metrics


def _metric(ours: list[float], limit: list[float], goal: float | None) -> Metric:
    """Ours over the limit; the runs are KiB/s."""
    return Metric(ratio(ours, limit), goal, "higher", list(zip(ours, limit, strict=True)))


def _cold(
    bench: Workbench, layer: MountLayer, folder: Path, how: str, block: str, *, lazy: bool
) -> float:
    """One run with nothing in memory: fresh mounts, and no pages of what lies below."""
    os.sync()
    for path in [folder / "device", *bench.home.chunks.glob("*/*")]:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    seconds = 0 if how == "read" else COLD_RANDOM_S
    if lazy:
        managing.client(bench).restart()
        with _lazy(bench, folder) as file:
            return _fio(file, how, block, seconds)
    with _limit(bench, layer, folder) as (_, file):
        return _fio(file, how, block, seconds)


@contextlib.contextmanager
def _lazy(bench: Workbench, folder: Path) -> Iterator[Path]:
    with mounting.mounted(bench, REFERENCE, folder / "lazy", read_only=True) as rootfs:
        yield rootfs.target / "data"


@contextlib.contextmanager
def _limit(bench: Workbench, layer: MountLayer, folder: Path) -> Iterator[tuple[Path, Path]]:
    """The file in the plain EROFS, and in the overlay over it."""
    bare, rootfs, empty = (folder / name for name in ("bare", "rootfs", "empty"))
    for each in (bare, rootfs, empty):
        each.mkdir(exist_ok=True)
    metadata = MetadataImages(bench.home.root).ensure(layer)
    with contextlib.ExitStack() as stack:
        mount.mount_erofs(metadata, bare, device=folder / "device")
        stack.callback(mount.unmount, bare)
        mount.mount_overlay(rootfs, [bare, empty])
        stack.callback(mount.unmount, rootfs)
        yield bare / "data", rootfs / "data"


def _fio(file: Path, how: str, block: str, seconds: int = 0) -> float:
    """KiB a second by fio, over the whole file once or for some seconds."""
    command = [
        *("fio", "--name=read", f"--filename={file}", f"--rw={how}", f"--bs={block}"),
        *("--readonly", "--ioengine=psync", "--invalidate=0", "--norandommap", "--randseed=7"),
        *(f"--size={FILE_BYTES}", "--output-format=json"),
        *(("--time_based", f"--runtime={seconds}") if seconds else ()),
    ]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return float(told["jobs"][0]["read"]["bw"])


def make_tree(tree: Path) -> None:
    """Half noise, half text, as binaries are: neither all incompressible nor all the same."""
    tree.mkdir()
    noise = random.Random(2609)
    with (tree / "data").open("wb") as file:
        for number in range(FILE_BYTES // _PIECE):
            text = b"%d some text that compresses well\n" % number
            file.write(noise.randbytes(_PIECE // 2) + (text * _PIECE)[: _PIECE // 2])


def _write_device(layer: MountLayer, path: Path) -> None:
    """The device of the layer as a plain file."""
    with path.open("wb") as device:
        for chunk in contents.table_of(layer):
            pack = layer.manifest.packs[chunk.pack]
            stored = layer.blobs.read(pack, chunk.pack_offset, chunk.stored_length)
            device.write(decode_chunk(stored, chunk.length, chunk.digest))
        os.fsync(device.fileno())
