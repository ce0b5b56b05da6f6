"""Ctrl-C in the middle of much work: the command ends, soon, and leaves nothing.

How long each took is printed (`pytest -s`); two seconds is what people should wait at most. The
limit here is what a machine with much else to do may need.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.support import bigimages
from tests.support.cli import BASE, Cli, pids_with

pytestmark = [pytest.mark.root, pytest.mark.overlay, pytest.mark.erofs, pytest.mark.oci]

LIMIT_S = 30
LARGE_BYTES = 400 << 20
SLEEP = f"sleep {6_000_000 + os.getpid()}"

Child = subprocess.Popen[bytes]


def interrupted(
    cli: Cli,
    ready: Callable[[Child], bool],
    *words: str | Path,
    feed: Callable[[IO[bytes]], None] | None = None,
) -> None:
    """Start a command, interrupt it when `ready` says so, and see it end."""
    with cli.start("--progress", "json", *words) as child:
        assert child.stdin is not None

        def write(stdin: IO[bytes]) -> None:
            with contextlib.suppress(BrokenPipeError), stdin:
                if feed:
                    feed(stdin)

        thread = threading.Thread(target=write, args=(child.stdin,))
        thread.start()
        while not ready(child):
            assert child.poll() is None, "it ended before it could be interrupted"
        asked = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        said = child.stderr.read()
        child.wait()
        took_s = time.monotonic() - asked
        thread.join()
    print(f"{words[0]}: ended after {took_s:.2f} s")
    assert child.returncode == 128 + signal.SIGINT, said
    assert b'"Interrupted"' in said.splitlines()[-1]
    assert took_s < LIMIT_S
    assert pids_with(SLEEP.replace(" ", "\0")) == []
    assert cli.leftovers() == []


def told(word: bytes) -> Callable[[Child], bool]:
    """Whether the command says so in its next line."""

    def found(child: Child) -> bool:
        assert child.stderr is not None
        return word in child.stderr.readline()

    return found


def there(folder: Path, pattern: str) -> Callable[[Child], bool]:
    """Whether there is such a file."""
    return lambda _child: next(folder.glob(pattern), None) is not None


def context(cli: Cli, steps: str, size_bytes: int = 0) -> Path:
    folder = cli.folder / "context"
    folder.mkdir()
    (folder / "Layerfile").write_text(f"LAYER base x\nFROM {BASE}\n{steps}")
    for number in range(size_bytes >> 20):
        (folder / f"file-{number}").write_bytes(os.urandom(1 << 20))
    return folder


def large_base(cli: Cli) -> None:
    folder = cli.folder / "large"
    folder.mkdir()
    for number in range(LARGE_BYTES >> 20):
        (folder / f"file-{number}").write_bytes(os.urandom(1 << 20))
    cli("import", folder, "base/large:1")


@pytest.mark.parametrize("patience_s", [0.0, 0.3])
def test_a_large_context(cli: Cli, patience_s: float) -> None:
    """At once while its digest is made, a moment later maybe while it is copied."""
    folder = context(cli, "COPY . /all\n", LARGE_BYTES)

    def ready(child: Child) -> bool:
        found = told(b'"step"')(child)
        time.sleep(patience_s if found else 0)
        return found

    interrupted(cli, ready, "build", folder)
    assert cli.tags() == [BASE]


@pytest.mark.parametrize("trap", ["", "trap '' INT TERM HUP;"])
def test_a_command(cli: Cli, trap: str) -> None:
    folder = context(cli, f"RUN {trap} {SLEEP} & echo ready; {SLEEP}\n")
    interrupted(cli, told(b"ready\\n"), "build", folder)
    assert cli.tags() == [BASE]


def test_packing(cli: Cli) -> None:
    folder = context(cli, "COPY . /all\n", LARGE_BYTES)
    interrupted(cli, there(cli.home / "making", "pack-*/*/*"), "build", folder)
    assert cli.tags() == [BASE]


def test_an_archive_through_a_pipe(bare: Cli) -> None:
    interrupted(
        bare,
        there(bare.home / "making", "import-*/contents-*"),
        *("import", "-", "base/x:1"),
        feed=lambda out: bigimages.write_archive(out, LARGE_BYTES),
    )
    assert bare.tags() == []


def test_a_push(cli: Cli) -> None:
    large_base(cli)
    store = cli.folder / "store"
    interrupted(cli, there(store, "blobs/**/*"), "push", "base/large:1", f"dir://{store}")
    assert not list(store.rglob("tmp-*"))
    assert not list((store / "refs").rglob("@1"))


@pytest.mark.parametrize("form", ["oci-archive", "oci"])
def test_an_export(cli: Cli, form: str) -> None:
    large_base(cli)
    (cli.folder / "out").mkdir()
    target = f"{form}:{cli.folder / 'out/image'}"
    interrupted(cli, there(cli.folder / "out", "*"), "export", "base/large:1", target)
    assert list((cli.folder / "out").iterdir()) == []
