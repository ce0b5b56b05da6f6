"""Importing an OCI image of 1 GB as a layer, against `umoci unpack` of the same image.

The image has two gzip layers: a Debian root and a scientific Python stack. Both read from the page
cache and write to the same disk; ours ends with a layer that is packed, compressed and named.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import pythons
from bench.pythons import dsec
from bench.report import Metric, Report, interleaved, ratio

SPEED_GOAL: Final = 1.0
SIZE_GOAL: Final = 1e9
_IMPORTED: Final = "base/bench/imported:v1"


def main() -> Report:
    """Measure the speed of an import over that of unpacking."""
    image = pythons.image()
    with tempfile.TemporaryDirectory(prefix="bench-import-", dir="/var/tmp") as name:
        folder = Path(name)
        theirs, ours = interleaved(lambda: _unpack(image, folder), lambda: _import(image, folder))
        size = _unpacked_bytes(image, folder)
    runs = list(zip(theirs, ours, strict=True))
    return Report(
        "import_image",
        {
            "image_bytes": Metric(size, SIZE_GOAL, "higher"),
            "speed_vs_umoci": Metric(ratio(theirs, ours), SPEED_GOAL, "higher", runs),
        },
    )


def _import(image: Path, folder: Path) -> float:
    home = folder / "home"
    try:
        return _timed(lambda: dsec(home, "import", image, _IMPORTED))
    finally:
        shutil.rmtree(home)


def _unpack(image: Path, folder: Path) -> float:
    bundle = folder / "bundle"
    command = ["umoci", "unpack", "--image", f"{image}:v1", str(bundle)]
    try:
        return _timed(lambda: subprocess.run(command, check=True))
    finally:
        shutil.rmtree(bundle)


def _unpacked_bytes(image: Path, folder: Path) -> int:
    """The bytes of all files of the image."""
    bundle = folder / "bundle"
    subprocess.run(["umoci", "unpack", "--image", f"{image}:v1", str(bundle)], check=True)
    try:
        told = subprocess.run(["du", "-sb", bundle / "rootfs"], check=True, stdout=subprocess.PIPE)
        return int(told.stdout.split()[0])
    finally:
        shutil.rmtree(bundle)


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
