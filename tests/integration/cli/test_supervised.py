"""Holder and daemon under a supervisor, as the units of systemd have it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cli import BASE, ROOT, Cli

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay]
UNITS = ROOT / "packaging/systemd"


@contextlib.contextmanager
def serving(cli: Cli) -> Iterator[int]:
    """A daemon in the foreground, until the end of the block; its process."""
    with cli.start("daemon", "serve") as child:
        try:
            yield child.pid
        finally:
            child.terminate()
            child.communicate()


def await_daemon(cli: Cli, pid: int) -> None:
    """Wait until this process is the one that serves."""
    while True:
        told = cli.run("daemon", "status", "--json")
        if told.status == 0 and f'"pid": {pid}' in told.text:
            return
        time.sleep(0.05)


def test_a_supervised_daemon_is_replaced_under_a_mount(cli: Cli) -> None:
    target = cli.folder / "mnt"
    assert cli.json("daemon", "hold") == {"held": True}
    with serving(cli) as first:
        await_daemon(cli, first)
        cli("mount", BASE, target)
        fd = os.open(target / "bin/sh", os.O_RDONLY)
    try:
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit(os.pread, fd, 1 << 20, 0)  # nobody is there, and nobody is called
            time.sleep(0.2)
            assert not read.done()
            with serving(cli) as second:
                assert read.result(60)[:4] == b"\x7fELF"
                await_daemon(cli, second)
                assert cli.json("daemon", "status")["generation"] == 2
                os.close(fd)
                cli("umount", target)
    finally:
        cli("daemon", "stop", "--force")
    assert cli.leftovers() == []


def test_a_second_daemon_stands_by(cli: Cli) -> None:
    cli("daemon", "restart")  # as `mount` starts one
    pid = cli.json("daemon", "status")["pid"]
    with serving(cli) as waiting:
        time.sleep(0.2)
        assert cli.json("daemon", "status")["pid"] == pid
        os.kill(pid, signal.SIGKILL)
        # Its holder calls for a successor too: one of the two serves, and the other does no harm.
        while True:
            told = cli.run("daemon", "status", "--json")
            if told.status == 0 and f'"pid": {pid}' not in told.text:
                break
            time.sleep(0.05)
        assert waiting
        cli("daemon", "stop")


def test_serving_needs_a_holder(cli: Cli) -> None:
    ran = cli.run("daemon", "serve")
    assert ran.status != 0
    assert "holder" in ran.error


@pytest.mark.peers("systemd-analyze")
def test_the_units_are_right(tmp_path: Path) -> None:
    program = tmp_path / "dsec-layers"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNITS.glob("*.service"):
        text = re.sub("/usr/bin/dsec(-layers)?(?= )", str(program), unit.read_text())
        (tmp_path / unit.name).write_text(text)
    units = sorted(map(str, tmp_path.glob("*.service")))
    assert len(units) == 3
    analyze = shutil.which("systemd-analyze")
    assert analyze
    ran = subprocess.run([analyze, "verify", *units], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
