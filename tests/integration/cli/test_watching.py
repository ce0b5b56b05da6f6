"""`stats --watch` and `daemon metrics`, over a real mount."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsec_layers.errors import NotFoundError
from tests.support.cli import BASE, PROGRAM, ROOT, Cli

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay]


@pytest.fixture
def target(cli: Cli) -> Path:
    return cli.folder / "mnt"


def test_a_mount_is_watched_and_measured(cli: Cli, target: Path) -> None:
    assert "does not run" in cli.fails(NotFoundError, "stats", "--watch").error
    cli("mount", BASE, target)
    with cli.start("stats", "--watch", "0.2", "--json") as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        first = json.loads(watching.stdout.readline())
        assert [layer["layer"].startswith("base/small") for layer in first["layers"]] == [True]
        assert first["layers"][0]["mounts"] == [str(target)]
        (target / "bin/sh").read_bytes()
        reads = 0.0
        while reads == 0:
            reads = json.loads(watching.stdout.readline())["total"]["reads_per_s"]
        watching.send_signal(signal.SIGINT)
        watching.communicate()
        assert watching.returncode == 128 + signal.SIGINT
    lines = cli("stats", "--watch", "0.1", "--count", "2").splitlines()
    assert len(lines) == 2
    assert all("reads/s" in line and "0 errors" in line for line in lines)
    families = {each.name for each in text_string_to_metric_families(cli("daemon", "metrics"))}
    assert {"dsec_kernel_reads", "dsec_store_breaker", "dsec_kernel_read_seconds"} <= families
    assert "dsec_mounts 1.0\n" in cli.json("daemon", "metrics")["metrics"]
    cli("umount", target)
    assert cli.leftovers() == []


def test_a_table_on_a_terminal(cli: Cli, target: Path) -> None:
    cli("mount", BASE, target)
    ours, theirs = pty.openpty()
    words = ["--home", str(cli.home), "stats", "--watch", "0.1", "--count", "2"]
    shown = bytearray()

    def collect() -> None:
        with open(ours, "rb", buffering=0) as terminal:
            while piece := _read(terminal.fileno()):
                shown.extend(piece)

    reader = threading.Thread(target=collect)
    reader.start()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    try:
        subprocess.run([*PROGRAM, *words], stdout=theirs, cwd=ROOT, env=environ, check=True)
    finally:
        os.close(theirs)
        reader.join()
    assert b"READS/S" in shown
    assert b"base/small" in shown
    cli("umount", target)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # nobody has the other side open any more
        return b""


def test_count_goes_with_watch(cli: Cli) -> None:
    assert "--watch" in cli.run("stats", "--count", "2").error
