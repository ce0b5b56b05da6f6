"""Trees to measure with: the same on every run, made of what every Debian machine with Python has.

Files are cut from the standard library's sources and binaries, so that they compress and hash like
real installations; sizes follow a log-normal distribution, as in package trees: most are a few KiB,
most bytes lie in the few large ones.
"""

from __future__ import annotations

import math
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

MEDIAN_BYTES = 2800
SIGMA = 1.75
MAX_BYTES = 24 << 20
FILES_PER_DIRECTORY = 24
EMPTY_SHARE = 0.03
DUPLICATE_SHARE = 0.05
BINARY_SHARE = 0.15
RANDOM_SHARE = 0.04  # images, archives: bytes that do not compress


def make_tree(root: Path, *, files: int, total_bytes: int, seed: int = 7) -> None:
    """Fill the new directory `root` with `files` files of `total_bytes` in all (within 1 %)."""
    rng = random.Random(seed)
    sizes = _sizes(rng, files, total_bytes)
    text, binary = _corpus("*.py"), _corpus("*.so") + Path(sys.executable).resolve().read_bytes()
    last = b""
    for index, (path, size) in enumerate(zip(_paths(root, files), sizes, strict=True)):
        if index % FILES_PER_DIRECTORY == 0:
            path.parent.mkdir(parents=True)
        data = (
            last
            if rng.random() < DUPLICATE_SHARE and len(last) == size
            else _content(rng, size, text, binary)
        )
        path.write_bytes(data)
        last = data


def _paths(root: Path, files: int) -> Iterator[Path]:
    for index in range(files):
        directory = index // FILES_PER_DIRECTORY
        yield (
            root / f"pkg{directory // 50:03}" / f"module{directory % 50:02}" / f"file{index:06}.py"
        )


def _sizes(rng: random.Random, files: int, total_bytes: int) -> list[int]:
    drawn = [
        min(MAX_BYTES, int(rng.lognormvariate(math.log(MEDIAN_BYTES), SIGMA))) for _ in range(files)
    ]
    for index in range(1, files):
        if rng.random() < EMPTY_SHARE:
            drawn[index] = 0
        elif rng.random() < DUPLICATE_SHARE:
            drawn[index] = drawn[index - 1]
    scale = total_bytes / sum(drawn)
    return [int(size * scale) for size in drawn]


def _content(rng: random.Random, size: int, text: bytes, binary: bytes) -> bytes:
    kind = rng.random()
    if kind < RANDOM_SHARE:
        return rng.randbytes(size)
    corpus = binary if kind < RANDOM_SHARE + BINARY_SHARE else text
    pieces, left = [b"# %016x\n" % rng.getrandbits(64)], size
    while left > 0:
        start = rng.randrange(len(corpus))
        pieces.append(corpus[start : start + min(left, rng.randrange(512, 32768))])
        left -= len(pieces[-1])
    return b"".join(pieces)[:size]


def _corpus(pattern: str) -> bytes:
    library = Path(sysconfig.get_path("stdlib"))
    found = sorted(path for path in library.rglob(pattern) if "site-packages" not in path.parts)
    return b"".join(path.read_bytes() for path in found)
