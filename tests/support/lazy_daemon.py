"""A lazy file system daemon whose stores obey a test: `python -m tests.support.lazy_daemon`.

Stores are `faulty:///folder`, a directory store. Before a pack is read, a file beside the store
decides: `folder.fault` holds `fail`, `lie`, `short` or `gate`. At the gate a read announces itself
by a byte into the FIFO `folder.arrived` and goes on when the FIFO `folder.opened` can be opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.errors import StoreError
from dsec_layers.lazyfs.breaker import BreakerLimits
from dsec_layers.lazyfs.daemon import main
from dsec_layers.lazyfs.lane import LaneLimits
from dsec_layers.lazyfs.retries import Retries
from dsec_layers.lazyfs.service import Options
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry.urls import open_store

LIMITS = LaneLimits(
    retries=Retries(attempts=3, first_s=0.01),
    breaker=BreakerLimits(first_pause_s=0.05, most_pause_s=0.2),
)


@dataclass
class ObedientStore:
    """The reader the daemon sees."""

    source: BlobReader
    control: str

    def has(self, blob: Descriptor) -> bool:
        return self.source.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        data = self.source.read(blob, offset, length)
        if blob.media_type != PACK_TYPE:
            return data
        try:
            fault = Path(f"{self.control}.fault").read_text()
        except FileNotFoundError:
            fault = ""
        if fault == "fail":
            raise StoreError("told to fail")
        if fault == "gate":
            with open(f"{self.control}.arrived", "wb") as arrived:
                arrived.write(b"x")
            os.close(os.open(f"{self.control}.opened", os.O_RDONLY))
        if fault == "short":
            return data[:-1]
        return data if fault != "lie" else bytes([data[0] ^ 1]) + data[1:]

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        yield self.read(blob)


class Faults:
    """A test's side of an ObedientStore."""

    def __init__(self, folder: Path) -> None:
        self.url = f"faulty://{folder}"
        self._control = str(folder)
        os.mkfifo(f"{folder}.arrived")
        os.mkfifo(f"{folder}.opened")
        # Held open at both ends, so that no byte is lost and no side waits for the other.
        self._arrived = os.open(f"{folder}.arrived", os.O_RDWR | os.O_CLOEXEC)
        self._opened: int | None = None

    def set(self, fault: str) -> None:
        """What happens to every read from now on; empty for nothing."""
        path = Path(f"{self._control}.fault")
        path.with_suffix(".new").write_text(fault)
        path.with_suffix(".new").rename(path)

    def await_arrivals(self, count: int = 1) -> None:
        """Wait until `count` more reads stand at the gate."""
        for _ in range(count):
            assert os.read(self._arrived, 1) == b"x"

    def open_gate(self) -> None:
        """Let everybody through from now on."""
        self.set("")
        if self._opened is None:
            self._opened = os.open(f"{self._control}.opened", os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Open the gate for good and let go."""
        self.open_gate()
        os.close(self._arrived)


def _open(url: str) -> BlobReader:
    if not url.startswith("faulty://"):
        return open_store(url)
    folder = url.removeprefix("faulty://")
    return ObedientStore(open_store(f"dir://{folder}"), folder)


if __name__ == "__main__":
    main(_open, options=Options(store=LIMITS))
