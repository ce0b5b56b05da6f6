"""What a container takes when it takes all it can, and what is told of it."""

from __future__ import annotations

import time

import msgspec
import pytest

from dsec_runtime.spec import MIB, EndCause
from tests.support.sandboxes import LIMITS, Box, Sandboxes

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
]  # fmt: skip


def lives(box: Box) -> bool:
    """Whether the agent answers and commands can be run."""
    return box.ok("echo here") == "here\n"


def test_memory(box: Box) -> None:
    ran = box.run("tail", "/dev/zero")
    assert (ran.end.cause, ran.end.signal) == (EndCause.SIGNALLED, 9)
    assert box.tier.usage(box.running).oom_kills >= 1
    assert lives(box)


def test_who_was_killed_for_want_of_memory_is_told(box: Box) -> None:
    assert box.tier.last_oom(box.running) is None
    box.run("tail", "/dev/zero")
    kill = box.tier.last_oom(box.running)
    assert kill is not None
    assert (kill.process, kill.limit_bytes) == ("tail", LIMITS.memory_bytes)


def test_memory_of_many_small_processes(box: Box) -> None:
    box.sh(
        "for i in $(seq 20); do perl -e '$x = \"a\" x 20e6; sleep 60' & done; wait", timeout_s=20
    )
    assert lives(box)


def test_memory_file_systems(box: Box) -> None:
    ran = box.sh("cat /dev/zero > /dev/shm/all")
    assert "No space left" in ran.stderr
    assert lives(box)


def test_a_fork_bomb(box: Box) -> None:
    ran = box.sh("bomb() { bomb | bomb & }; bomb; sleep 3; echo over", timeout_s=20)
    assert ran.end.cause in (EndCause.EXITED, EndCause.TIMEOUT)
    assert box.tier.usage(box.running).pids <= (LIMITS.pids or 0)
    box.tier.destroy(box.id)


def test_a_fork_bomb_leaves_the_platform_alone(boxes: Sandboxes, box: Box) -> None:
    other = boxes.create()
    box.run("perl", "-e", "fork while 1", timeout_s=2)
    assert lives(other)


def test_the_disk(box: Box) -> None:
    ran = box.sh("cat /dev/zero > /all; echo more > /more")
    assert "No space left" in ran.stderr
    used = box.tier.usage(box.running).disk_bytes
    assert 48 * MIB < used <= 64 * MIB
    box.ok("rm /all; echo room > /more")
    assert box.tier.usage(box.running).disk_bytes < MIB


def test_space_that_is_freed_goes_back_to_the_node(box: Box) -> None:
    image = box.folder / "disk.img"
    box.ok("head -c 32000000 /dev/zero > /much; sync")
    full = image.stat().st_blocks
    box.ok("rm /much; sync")
    while image.stat().st_blocks >= full - 40_000:
        time.sleep(0.02)  # ext4 discards after the commit that sync waits for


def test_many_files(box: Box) -> None:
    ran = box.perl("for (1..1e6) { open(F, '>', \"/tmp/$_\") or print($!), last }")
    assert ran.stdout == "No space left on device"
    assert lives(box)


def test_processors(boxes: Sandboxes) -> None:
    limits = msgspec.structs.replace(LIMITS, cpu_cores=0.05)
    box = boxes.create(boxes.spec(limits))
    box.perl("1 while (times)[0] < 0.1")
    used = box.tier.usage(box.running)
    assert used.cpu_s >= 0.1
    assert used.throttled_s > 0


def test_limits_hold_against_root_inside(box: Box) -> None:
    assert box.sh("find / -name cgroup.procs 2>/dev/null | head -1").stdout == ""
    assert box.sh("mkdir /tmp/g && mount -t cgroup none /tmp/g -o memory").status != 0
