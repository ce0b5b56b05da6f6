"""Swap for as long as it is needed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BYTES: Final = 2 << 30


@contextlib.contextmanager
def swap() -> Iterator[None]:
    """A machine with swap: a file of ours unless it has some already."""
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        yield
        return
    handle, name = tempfile.mkstemp(prefix="bench-node-swap-", dir="/var/tmp")
    try:
        os.posix_fallocate(handle, 0, _BYTES)
        os.close(handle)
        subprocess.run(["mkswap", name], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", name], check=True)
        try:
            yield
        finally:
            subprocess.run(["swapoff", name], check=True)
    finally:
        Path(name).unlink()
