"""Put and read packs of a store, many at once.

`python -m tests.support.moving_much URL COUNT BYTES` prints the most memory, in bytes, that
the process held before and after.
"""

from __future__ import annotations

import hashlib
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry.urls import open_store

PIECE = bytes(range(256)) * 4096


def pieces(number: int, size: int) -> Iterator[bytes]:
    """The bytes of one pack."""
    yield number.to_bytes(8, "big")
    left = size - 8
    while left:
        piece = PIECE[: min(left, len(PIECE))]
        left -= len(piece)
        yield piece


def peak_bytes() -> int:
    """The most that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(url: str, count: int, size: int) -> None:
    store = open_store(url, create=True)

    def move(number: int) -> None:
        hasher = hashlib.sha256()
        for piece in pieces(number, size):
            hasher.update(piece)
        blob = Descriptor(PACK_TYPE, f"sha256:{hasher.hexdigest()}", size)
        assert store.put(blob, pieces(number, size)) is True
        assert sum(map(len, store.stream(blob))) == size

    before = peak_bytes()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(move, range(count)))
    print(before, peak_bytes())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
