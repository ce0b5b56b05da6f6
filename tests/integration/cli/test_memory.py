"""However large an image is: importing it takes a bounded amount of memory.

By night the image has 10 GB, else 500 MB; that it is bounded shows already then.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.support import bigimages
from tests.support.cli import Cli
from tests.support.profiles import NIGHTLY

pytestmark = [pytest.mark.root, pytest.mark.timeout(3600)]

IMAGE_BYTES = 10_000_000_000 if NIGHTLY else 500_000_000
MAX_BYTES = 256 << 20
ENTRIES = 1_000_000 if NIGHTLY else 50_000
# What the process takes before it has seen an entry, and what each may add.
MAX_START_BYTES = 150 << 20
MAX_ENTRY_BYTES = 1 << 10


def peak_of(cli: Cli, source: str | Path, feed: Callable[[IO[bytes]], None] | None = None) -> int:
    """The peak memory of an import in bytes; `feed` writes its standard input."""
    told = cli.folder / "peak"
    prefix = [sys.executable, "-m", "tests.support.peak", str(told)]
    with cli.start("import", source, "base/x:1", prefix=prefix) as child:
        assert child.stdin is not None
        stdin = child.stdin

        def write() -> None:
            with contextlib.suppress(BrokenPipeError), stdin:
                if feed:
                    feed(stdin)

        thread = threading.Thread(target=write)
        thread.start()
        assert child.stderr is not None
        errors = child.stderr.read().decode()
        thread.join()
    assert child.returncode == 0, errors
    peak_bytes = int(told.read_text())
    print(f"peak: {peak_bytes / (1 << 20):.0f} MiB")
    return peak_bytes


def test_an_image_through_a_pipe(bare: Cli) -> None:
    peak_bytes = peak_of(bare, "-", lambda out: bigimages.write_archive(out, IMAGE_BYTES))
    assert peak_bytes < MAX_BYTES


def test_an_image_in_a_layout(bare: Cli) -> None:
    root = bare.folder / "layout"
    for name, _, pieces in bigimages.layout(IMAGE_BYTES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
    assert peak_of(bare, root) < MAX_BYTES


def test_many_entries(bare: Cli) -> None:
    peak_bytes = peak_of(bare, "-", lambda out: bigimages.write_many(out, ENTRIES))
    assert peak_bytes < MAX_START_BYTES + ENTRIES * MAX_ENTRY_BYTES
