"""Lines of the kernel's log that name a victim."""

from __future__ import annotations

import pytest

from dsec_runtime.linux.kmsg import Victim, parse

_LINE = (
    b"6,6510,2401234567,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=%s,"
    b"mems_allowed=0,oom_memcg=/dsec/%s,task_memcg=/dsec/%s,task=%s,pid=4711,uid=1073741824\n"
    b" SUBSYSTEM=x\n"
)


@pytest.mark.parametrize("name", [b"tail", b"a,pid=1,uid=0", b"with space", b"\\x0a"])
def test_the_victim_is_named(name: bytes) -> None:
    found = parse(_LINE % (b"box", b"box", b"box", name))
    assert found == Victim(name.decode(), 4711, "/dsec/box")


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"6,1,2,-;Memory cgroup out of memory: Killed process 4711 (tail) total-vm:1kB",
        b"6,1,2,-;erofs (device erofs): mounted with root inode @ nid 128.",
        b"6,1,2,-;somebody says oom-kill:oom_memcg=/dsec/x,task_memcg=/x,task=y,pid=1,uid=",
    ],
)
def test_other_lines_are_passed_over(record: bytes) -> None:
    assert parse(record) is None
