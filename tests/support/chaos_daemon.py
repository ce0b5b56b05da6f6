"""A lazy file system daemon whose stores misbehave: `python -m tests.support.chaos_daemon`.

Stores are `chaos:///folder`, a directory store. The file `folder.mood` says what becomes of reads
of packs, as `MOOD SHARE`: in that share of them the store

    fail    raises StoreError          short   gives a part of what was asked for
    lie     flips a bit                empty   gives nothing at all
    slow    takes a while              hang    answers when its mood has changed
    gone    says it has no such pack

and `folder.MOOD` grows by a byte for each read that this befell, whatever daemon made it.
Limits are small, so that everything happens within seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsec_layers.errors import NotFoundError, StoreError
from dsec_layers.lazyfs.breaker import BreakerLimits
from dsec_layers.lazyfs.daemon import main
from dsec_layers.lazyfs.lane import LaneLimits
from dsec_layers.lazyfs.retries import Retries
from dsec_layers.lazyfs.service import Options
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry.urls import open_store

# The moods of which a reader may see EIO; of the others he only feels the time.
FAILING: Final = ("fail", "lie", "short", "empty", "hang", "gone")
MOODS: Final = (*FAILING, "slow")
BREAKER: Final = BreakerLimits(first_pause_s=0.1, most_pause_s=0.5)
DEADLINE_S: Final = 1.5
OPTIONS: Final = Options(
    cache_limit_bytes=12 << 20,
    memory_limit_bytes=2 << 20,
    store=LaneLimits(
        threads=8,
        deadline_s=DEADLINE_S,
        retries=Retries(attempts=3, first_s=0.01, most_s=0.1),
        breaker=BREAKER,
    ),
)


def set_mood(folder: Path, mood: str, share: float = 1.0) -> None:
    """What becomes of reads from now on; the mood "" is that of a store that works."""
    aside = Path(f"{folder}.mood.new")
    aside.write_text(f"{mood} {share}" if mood else "")
    aside.rename(f"{folder}.mood")


@dataclass
class MoodyStore:
    """The reader the daemon sees."""

    source: BlobReader
    folder: str

    def has(self, blob: Descriptor) -> bool:
        return self.source.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        data = self.source.read(blob, offset, length)
        mood, share = self._mood()
        if blob.media_type != PACK_TYPE or not mood or random.random() >= share:
            return data
        with Path(f"{self.folder}.{mood}").open("ab", buffering=0) as count:
            count.write(b"x")
        return self._spoilt(mood, blob, data)

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        yield self.read(blob)

    def _mood(self) -> tuple[str, float]:
        try:
            mood, share = Path(f"{self.folder}.mood").read_text().split()
        except (FileNotFoundError, ValueError):
            return "", 0.0
        return mood, float(share)

    def _spoilt(self, mood: str, blob: Descriptor, data: bytes) -> bytes:
        if mood == "fail":
            raise StoreError("told to fail")
        if mood == "gone":
            raise NotFoundError(f"told to lack {blob.digest}")
        if mood == "lie":
            place = random.randrange(len(data))
            return (
                data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]
            )
        if mood == "short":
            return data[: random.randrange(len(data))]
        if mood == "slow":
            time.sleep(random.uniform(0.02, 0.3))
        while mood == "hang" and self._mood()[0] == "hang":
            time.sleep(0.05)
        return b"" if mood == "empty" else data


def _open(url: str) -> BlobReader:
    if not url.startswith("chaos://"):
        return open_store(url)
    folder = url.removeprefix("chaos://")
    return MoodyStore(open_store(f"dir://{folder}"), folder)


if __name__ == "__main__":
    main(_open, options=OPTIONS)
