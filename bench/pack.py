"""Packing a tree of 60,000 files and 0.8 GB into a layer, against `tar | zstd -3 -T2` of it.

Both read from the page cache and write to the same disk. Packing runs in a process of its own; its
clock starts after the imports and covers the walk, the pack and the put into a directory store.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import Metric, Report, interleaved, peak_mib, ratio
from bench.trees import make_tree
from dsec_layers.builder.pack import pack_layer
from dsec_layers.model.reference import Kind
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.sources.directory import walk

FILES = 60_000
TOTAL_BYTES = 800_000_000
SPEED_GOAL = 0.7
MEMORY_GOAL_MIB = 400


def main() -> Report:
    """Measure speed against tar and zstd, peak memory and size."""
    with tempfile.TemporaryDirectory(prefix="bench-pack-", dir="/var/tmp") as folder:
        tree = Path(folder) / "tree"
        make_tree(tree, files=FILES, total_bytes=TOTAL_BYTES)
        packed: list[dict[str, float]] = []

        def pack() -> float:
            packed.append(_pack_in_child(tree, Path(folder) / "store"))
            return packed[-1]["seconds"]

        archive = Path(folder) / "tree.tar.zst"
        archived, seconds = interleaved(lambda: _archive(tree, archive), pack)
        archive_bytes = archive.stat().st_size
    peaks = [run["peak_mib"] for run in packed]
    speed = ratio(archived, seconds)
    relative_size = packed[0]["stored_bytes"] / archive_bytes
    return Report(
        "pack",
        {
            "speed_vs_tar_zstd": Metric(
                speed, SPEED_GOAL, "higher", list(zip(archived, seconds, strict=True))
            ),
            "peak_memory_mib": Metric(max(peaks), MEMORY_GOAL_MIB, "lower", peaks),
            "pack_mb_per_s": Metric(
                TOTAL_BYTES / 1e6 / statistics.median(seconds), None, "higher", seconds
            ),
            "size_vs_tar_zstd": Metric(relative_size, None, "lower"),
        },
    )


def _archive(tree: Path, archive: Path) -> float:
    start = time.perf_counter()
    with (
        archive.open("wb") as out,
        subprocess.Popen(["tar", "-C", tree, "-cf", "-", "."], stdout=subprocess.PIPE) as tar,
    ):
        subprocess.run(["zstd", "-3", "-T2", "-q"], stdin=tar.stdout, stdout=out, check=True)
    if tar.returncode:
        raise RuntimeError("tar failed")
    return time.perf_counter() - start


def _pack_in_child(tree: Path, folder: Path) -> dict[str, float]:
    folder.mkdir()
    try:
        command = [sys.executable, "-m", "bench.pack", str(tree), str(folder)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        result: dict[str, float] = json.loads(output)
        return result
    finally:
        shutil.rmtree(folder)


def _child(tree: Path, folder: Path) -> dict[str, float]:
    store = DirectoryStore.open(folder / "store", create=True)
    start = time.perf_counter()
    layer = pack_layer(walk(tree), kind=Kind.BASE, name="bench", store=store, work_dir=folder)
    seconds = time.perf_counter() - start
    stored_bytes = sum(blob.size for blob in layer.manifest.blobs)
    return {"seconds": seconds, "peak_mib": peak_mib(), "stored_bytes": stored_bytes}


if __name__ == "__main__":
    print(json.dumps(_child(Path(sys.argv[1]), Path(sys.argv[2]))))
