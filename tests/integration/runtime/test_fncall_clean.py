"""What a task leaves at a real edge, and that no other finds it."""

from __future__ import annotations

import pytest

from dsec_runtime.sdk import DSecClient
from dsec_runtime.spec import MIB, Limits
from tests.support.edges import RealEdge
from tests.support.fncalls import containers, discards, settled, task

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]

# What a task can see of others; the time of a folder's change and the number of processes are
# those of its container.
LOOK = """
find / -xdev -newermt '2000-01-01' ! -path '/proc*' -type f | sort
find /task /tmp /dev/shm /dev/mqueue | sort
stat -c '%n %a %u %g %Y' /task /tmp /dev/shm
cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg | wc -l
cat /proc/net/unix /proc/net/tcp /proc/net/udp | wc -l
cat /proc/1/limits /proc/self/limits
cut -d' ' -f2-3 /proc/self/mounts
set -- /proc/[0-9]*; echo $#
stat -c '%n %F %a %u %g' /dev/* /dev/pts/*
"""
DIRTY = {
    "a file in the root": "echo > /evil",
    "a changed file": "chmod 700 /bin/sh",
    "a removed file": "rm /bin/seq",
    "an owner": "perl -e 'chown 7, 7, \"/etc\" or die'",
    "a mode of the scratch": "chmod 755 /tmp",
    "too many files": "seq 5000 | while read i; do : > /tmp/$i; done",
    "a device folder": "echo > /dev/evil",
    "a shared memory": "perl -e 'syscall(29, 77, 4096, 0666 | 01000) >= 0 or die'",
    "a semaphore": "perl -e 'syscall(64, 77, 1, 0666 | 01000) >= 0 or die'",
    "a queue": "perl -e '$n = \"evil\"; syscall(240, $n, 0102, 0600, 0) >= 0 or die'",
    "a connection that lingers": """perl -e '$a = pack "Sna4x8", 2, 7777, "\\x7f\\0\\0\\1";
        socket(L, 2, 1, 0); bind(L, $a) or die; listen(L, 1); socket(C, 2, 1, 0);
        connect(C, $a) or die; accept(A, L); close C; select undef, undef, undef, 0.1; close A'""",
}
CLEANED = {
    "nothing": "true",
    "files": "mkdir -p a/b; echo > a/b/c; ln -s / l; echo > /tmp/x; echo > /dev/shm/y; chmod 0 a",
    "a daemon": """perl -e 'if (!fork) { syscall 112; $SIG{$_} = "IGNORE" for qw(HUP INT TERM);
        exec "sleep", 1000 if !fork; sleep 1000 }'""",
    "times": "perl -e 'utime 1, 2, $_ for qw(/tmp /task /dev/shm)'",
    "an abstract socket": """perl -e 'socket(S, 1, 1, 0); bind(S, pack "Sa*", 1, "\\0evil") or die;
        if (!fork) { sleep 1000 }'""",
}


@pytest.mark.parametrize("what", CLEANED)
async def test_what_can_be_removed_is_not_found_by_the_next(client: DSecClient, what: str) -> None:
    await settled(client)
    before = await client.run_fncall(task(LOOK))
    await settled(client)
    unclean = await discards(client)
    assert (await client.run_fncall(task(CLEANED[what]))).stderr == b""
    await settled(client)
    assert await discards(client) == unclean
    after = await client.run_fncall(task(LOOK))
    assert after.text == before.text


@pytest.mark.parametrize("what", DIRTY)
async def test_what_cannot_be_removed_goes_with_its_container(
    edge: RealEdge, client: DSecClient, what: str
) -> None:
    await settled(client)
    before = await client.run_fncall(task(LOOK))
    await settled(client)
    there, unclean = containers(edge), await discards(client)
    result = await client.run_fncall(task(DIRTY[what]))
    assert result.ok, result.stderr
    await settled(client)
    assert there - containers(edge)  # one that idled too long may go as well
    assert await discards(client) == unclean + 1
    after = await client.run_fncall(task(LOOK))
    assert after.text == before.text


async def test_out_of_memory_ends_a_container(edge: RealEdge, client: DSecClient) -> None:
    limits = Limits(memory_bytes=48 * MIB)
    await client.run_fncall(task("true", limits=limits))
    await settled(client)
    there, unclean = containers(edge), await discards(client)
    hidden = "perl -e '$x = \"a\" x 300_000_000'; true"
    assert (await client.run_fncall(task(hidden, limits=limits))).ok
    await settled(client)
    assert there - containers(edge)
    assert await discards(client) == unclean + 1
