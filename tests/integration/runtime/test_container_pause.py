"""Pause and resume: memory goes back to the node, and nothing is lost, however often."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.errors import InfrastructureError
from dsec_runtime.resources import reclaim
from dsec_runtime.spec import MIB
from tests.support.sandboxes import LIMITS, Box, Sandboxes

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
]  # fmt: skip

_CYCLES = 20


@pytest.fixture(scope="module")
def swap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Swap, if the node has none."""
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        yield
        return
    file = Path("/var/tmp") / f"{tmp_path_factory.getbasetemp().parent.name}-swap"
    try:
        with file.open("wb") as out:
            for _ in range(512):
                out.write(bytes(MIB))
        file.chmod(0o600)
        subprocess.run(["mkswap", "-q", file], check=True)
        subprocess.run(["swapon", file], check=True)
        yield
        subprocess.run(["swapoff", file], check=True)
    finally:
        file.unlink(missing_ok=True)


def test_files_processes_and_sockets_outlive_many_cycles(box: Box) -> None:
    server = (
        "socket(S, 1, 1, 0); bind(S, pack('S a*', 1, '/tmp/s')); listen(S, 5);"
        "while (accept(C, S)) { syswrite C, ++$n; close C }"
    )
    ask = "socket(S, 1, 1, 0); connect(S, pack('S a*', 1, '/tmp/s')) or die; print <S>"
    box.ok(f'perl -e "{server.replace("$", chr(92) + "$")}" >/dev/null 2>&1 & echo $! > /tmp/pid')
    box.ok("while ! test -S /tmp/s; do :; done; echo 0 > /tmp/cycles")
    pid = box.ok("cat /tmp/pid")
    for cycle in range(1, _CYCLES + 1):
        box.tier.pause(box.running)
        assert box.tier.reattach(box.running)
        box.tier.resume(box.running)
        assert box.perl(ask).stdout == str(cycle)
        box.ok(f"echo {cycle} > /tmp/cycles; kill -0 {pid}")
    assert box.ok("cat /tmp/cycles").strip() == str(_CYCLES)


@pytest.mark.usefixtures("swap")
def test_memory_goes_to_swap_and_comes_back(boxes: Sandboxes) -> None:
    box = boxes.create(boxes.spec(msgspec.structs.replace(LIMITS, memory_bytes=256 * MIB)))
    holder = "$| = 1; $x .= chr(97 + $_ % 26) x 4096 for 1 .. 25600; print 1; sleep 1000;"
    box.ok(f"perl -e '{holder} print $x' > /tmp/out 2>&1 & echo started")
    box.ok("while ! test -s /tmp/out; do :; done")
    before = box.tier.usage(box.running)
    assert before.memory_bytes > 100 * MIB
    assert before.swap_bytes == 0
    gave = box.tier.pause(box.running)
    after = box.tier.usage(box.running)
    assert gave >= 0.9 * before.memory_bytes
    assert after.memory_bytes <= 0.1 * before.memory_bytes
    assert after.swap_bytes > 90 * MIB
    box.tier.resume(box.running)
    assert box.ok("cat /tmp/out") == "1"


def test_it_stands_still_and_goes_on(boxes: Sandboxes, box: Box) -> None:
    ticking = "(while :; do echo >> /tmp/ticks; done) >/dev/null 2>&1 &"
    box.ok(f"{ticking} until test -s /tmp/ticks; do :; done")
    box.tier.pause(box.running)
    ticks = box.folder / "root/tmp/ticks"
    size = ticks.stat().st_size
    assert boxes.create().ok("echo this takes a while")
    assert ticks.stat().st_size == size
    box.tier.resume(box.running)
    box.ok(f"while test $(stat -c %s /tmp/ticks) -le {size}; do :; done")


def test_a_pause_that_fails_leaves_it_running(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_pids: object) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(reclaim, "page_out", fails)
    with pytest.raises(InfrastructureError, match="cannot be paused"):
        box.tier.pause(box.running)
    assert box.ok("echo here") == "here\n"


def test_pausing_and_resuming_may_be_repeated(box: Box) -> None:
    for _ in range(2):
        box.tier.pause(box.running)
    for _ in range(2):
        box.tier.resume(box.running)
    assert box.ok("echo here") == "here\n"


def test_a_paused_one_is_destroyed(boxes: Sandboxes, box: Box) -> None:
    box.ok("sleep 1000 & echo")
    box.tier.pause(box.running)
    box.tier.destroy(box.id)
    assert boxes.left(box.id) == []
