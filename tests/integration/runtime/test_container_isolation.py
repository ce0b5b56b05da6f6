"""Root in a container, trying to get out: at the platform, the node, the kernel and the others."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.tiers.container.seccomp import IOCTLS
from tests.support.sandboxes import Box, Sandboxes

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64"),
]  # fmt: skip

_REFUSED = (errno.EPERM, errno.EACCES, errno.ESRCH, errno.ENOSYS, errno.EOPNOTSUPP)
_BUFFER = "pack('PQ', our $here = 'x' x 8, 8)"
# System calls by number (x86_64) and arguments; process 1 is the agent.
_CALLS = {
    "ptrace attach": (101, "16, 1, 0, 0"),
    "ptrace seize": (101, "0x4206, 1, 0, 0"),
    "process_vm_readv": (310, f"1, {_BUFFER}, 1, pack('QQ', 0x400000, 8), 1, 0"),
    "process_vm_writev": (311, f"1, {_BUFFER}, 1, pack('QQ', 0x400000, 8), 1, 0"),
    "process_madvise": (440, "syscall(434, 1, 0), pack('QQ', 0, 4096), 1, 21, 0"),
    "pidfd_getfd": (438, "syscall(434, 1, 0), 3, 0"),
    "kcmp": (312, "1, $$, 0, 3, 3"),
    "prlimit": (302, "1, 7, pack('QQ', 0, 0), 0"),
    "sched_setaffinity": (203, "1, 8, pack('Q', 1)"),
    "sched_setscheduler": (144, "1, 5, pack('l', 0)"),
    "setpriority": (141, "0, 1, 19"),
    "ioprio_set": (251, "1, 1, 3 << 13"),
    "move_pages": (279, "1, 0, 0, 0, 0, 0"),
    "mount": (165, "'none', '/tmp', 'tmpfs', 0, 0"),
    "umount": (166, "'/proc/kcore', 2"),
    "fsopen": (430, "'tmpfs', 0"),
    "open_tree": (428, "-100, '/', 1"),
    "mount_setattr": (442, "-100, '/', 0, pack('Q4', 0, 1, 0, 0), 32"),
    "pivot_root": (155, "'/tmp', '/tmp'"),
    "unshare user": (272, "0x10000000"),
    "unshare mount": (272, "0x20000"),
    "unshare network": (272, "0x40000000"),
    "setns": (308, "syscall(434, 1, 0), 0x20000"),
    "clone3": (435, "pack('Q11', 0x10000000, (0) x 10), 88"),
    "bpf": (321, "0, pack('Q8', 1, 4, 8, 1, (0) x 4), 64"),
    "perf_event_open": (298, "pack('LLQ14', 1, 112, 0, (0) x 13), 0, -1, -1, 0"),
    "userfaultfd": (323, "0"),
    "io_uring_setup": (425, "8, pack('Q15', (0) x 15)"),
    "keyctl": (250, "0, -3, 0"),
    "add_key": (248, "'user', 'x', 'y', 1, -3"),
    "open_by_handle_at": (304, "-100, pack('LLa8', 8, 1, ''), 0"),
    "init_module": (175, "'', 0, ''"),
    "kexec_load": (246, "0, 0, 0, 0"),
    "reboot": (169, "0xfee1dead, 672274793, 0x1234567, 0"),
    "swapon": (167, "'/tmp/x', 0"),
    "syslog": (103, "3, ' ' x 100, 100"),
    "settimeofday": (164, "pack('QQ', 0, 0), 0"),
    "clock_settime": (227, "0, pack('QQ', 0, 0)"),
    "sethostname": (170, "'evil', 4"),
    "quotactl": (179, "0x80000100, 'x', 0, 0"),
    "iopl": (172, "3"),
    "acct": (163, "'/tmp/x'"),
    "fanotify_init": (300, "0, 0"),
    "chroot by mknod": (133, "'/tmp/disk', 0x6180, 0xfe00"),
}
_UNREADABLE = (
    *("/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/dev/port", "/dev/vda", "/dev/fuse"),
    *("/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv", "/proc/1/exe"),
    *("/proc/1/fd/3", "/proc/1/root/etc/passwd", "/proc/1/cwd/etc/passwd", "/proc/1/stack"),
    *("/proc/1/map_files", "/proc/1/syscall", "/proc/1/pagemap", "/dev/loop0", "/dev/kvm"),
)
_EMPTY = (
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/kallsyms",
    "/proc/keys",
)
_UNWRITABLE = {
    "/proc/sysrq-trigger": "b",
    "/proc/sys/kernel/core_pattern": "|/x",
    "/proc/sys/kernel/modprobe": "/x",
    "/proc/sys/vm/drop_caches": "3",
    "/proc/sys/kernel/panic": "1",
    "/proc/sys/net/ipv4/ip_forward": "1",
    "/proc/1/oom_score_adj": "1000",
    "/proc/1/clear_refs": "1",
    "/proc/1/uid_map": "0 0 1",
    "/proc/1/attr/current": "x",
    "/proc/self/oom_score_adj": "-1000",
    "/proc/meminfo": "x",
    "/proc/cpuinfo": "x",
    "/sys/devices/system/cpu/online": "0",
    "/sys/power/state": "mem",
    "/sys/kernel/mm/ksm/run": "1",
    "/sys/fs/cgroup/cgroup.procs": "1",
    "/proc/fs/ext4/x": "x",
    "/proc/irq/default_smp_affinity": "1",
}


@pytest.fixture(scope="module")
def box(node_of_file: Sandboxes) -> Iterator[Box]:
    """One for all: nothing that is tried here may do it any harm."""
    made = node_of_file.create()
    node_of_file.made.remove(made.id)
    yield made
    node_of_file.tier.destroy(made.id)


@pytest.fixture(autouse=True)
def node_lives(box: Box) -> Iterator[None]:
    """Whatever was tried, the agent answers, and it is the same."""
    yield
    assert box.tier.reattach(box.running)
    assert box.ok("echo here") == "here\n"


@pytest.mark.parametrize("name", _CALLS)
def test_system_calls(box: Box, name: str) -> None:
    number, arguments = _CALLS[name]
    assert box.syscall(number, arguments) in _REFUSED


@pytest.mark.parametrize("path", _UNREADABLE)
def test_not_to_be_read(box: Box, path: str) -> None:
    assert box.sh(f"head -c 16 {path} | wc -c").stdout.strip() == "0"


@pytest.mark.parametrize("path", _EMPTY)
def test_empty(box: Box, path: str) -> None:
    assert box.sh(f"test -e {path} || exit 0; head -c 16 {path} | wc -c").stdout.strip() in (
        "",
        "0",
    )


@pytest.mark.parametrize("path", ["/proc/acpi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/tty"])
def test_folders_that_tell_of_the_node(box: Box, path: str) -> None:
    assert box.sh(f"test -e {path} || exit 0; ls -A {path}; mkdir {path}/x").stdout == ""
    assert box.sh(f"umount {path}; ls -A {path}").stdout == ""


@pytest.mark.parametrize("path", _UNWRITABLE)
def test_not_to_be_written(box: Box, path: str) -> None:
    assert box.sh(f"echo '{_UNWRITABLE[path]}' > {path}").status != 0


@pytest.mark.parametrize("high", [0, 1 << 32, 0xDEAD << 32])
@pytest.mark.parametrize("name", IOCTLS)
def test_ioctls_on_files(box: Box, name: str, high: int) -> None:
    script = (
        "open(F, '+>', '/tmp/of-ioctl') or die; "
        f"my $r = syscall(16, fileno(F), {IOCTLS[name] | high}, pack('Q16', (0) x 16));"
        "print $r == -1 ? $!+0 : 'done'"
    )
    assert box.perl(script).stdout == str(errno.EOPNOTSUPP)


def test_the_agent_cannot_be_killed(box: Box) -> None:
    box.sh("kill -9 1; kill -STOP 1; kill -TERM 1; kill -SEGV 1")


def test_no_program_gets_more_privileges(box: Box) -> None:
    assert box.ok("grep NoNewPrivs /proc/self/status").split()[1] == "1"
    assert int(box.ok("grep CapBnd /proc/self/status").split()[1], 16) & 1 << 21 == 0
    box.ok("cp /bin/id /tmp/id; chmod 4755 /tmp/id")
    assert "euid" not in box.run("/tmp/id", user="user").stdout


def test_setuid_programs_work_when_asked_for(boxes: Sandboxes) -> None:
    box = boxes.create(boxes.spec(new_privileges=True))
    box.ok("cp /bin/id /tmp/id; chmod 4755 /tmp/id")
    assert "euid=0(root)" in box.run("/tmp/id", user="user").stdout


def test_device_nodes_of_layers_do_not_open(boxes: Sandboxes) -> None:
    """The node's root puts one where a layer could have brought it."""
    box = boxes.create()
    os.mknod(box.folder / "root/disk", 0o60666, os.makedev(254, 0))
    os.mknod(box.folder / "root/null", 0o20666, os.makedev(1, 3))
    assert box.sh("head -c 1 /disk || head -c 1 /null").status != 0


def test_no_path_leads_to_the_platform(box: Box) -> None:
    for path in (box.folder, box.folder.parent.parent, Path("/srv") / box.id):
        assert box.sh(f"ls {path}").status != 0
    assert box.sh("find / -xdev -name agent.sock; find /proc/1/ -name 3").stdout == ""


def test_no_abstract_socket_of_the_node_is_there(box: Box) -> None:
    assert box.ok("cat /proc/net/unix | wc -l").strip() in ("1", "2", "3")


def test_network_is_loopback_alone(box: Box) -> None:
    interfaces = box.ok("grep : /proc/net/dev | cut -d: -f1 | tr -d ' '").split()
    assert interfaces == ["lo"]
    for kind in (2, 3):  # raw, and all packets of a link
        script = f"print socket(S, {2 if kind == 2 else 17}, 3, 255) ? 'yes' : 'no'"
        assert box.perl(script).stdout == "no"


def test_others_are_not_seen(boxes: Sandboxes, box: Box) -> None:
    other = boxes.create()
    other.ok("sleep 1000 & echo")
    assert other.id not in box.ok("cat /proc/*/cmdline /proc/mounts /proc/self/cgroup")
    assert "sleep" not in box.ok("cat /proc/[0-9]*/comm")


def test_a_message_queue_and_shared_memory_are_its_own(boxes: Sandboxes, box: Box) -> None:
    other = boxes.create()
    box.ok("echo x > /dev/shm/x; echo x > /tmp/x")
    assert other.sh("ls /dev/shm/x || ls /tmp/x").status != 0
    assert box.perl("print syscall(29, 42, 4096, 01666) >= 0 ? 'made' : 'no'").stdout == "made"
    assert other.perl("print syscall(29, 42, 0, 0) >= 0 ? 'seen' : 'no'").stdout == "no"


def test_replacing_programs_does_not_touch_the_platform(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("for f in /bin/*; do :; done; echo '#!/bin/none' > /tmp/evil; cp /tmp/evil /bin/ls")
    assert boxes.create().ok("ls /etc") != ""
    boxes.tier.snapshot(box.running, "toolkit/evil:1")


def test_a_walk_through_all_of_proc_and_sys_does_no_harm(box: Box) -> None:
    box.sh("find /proc /sys -type f -exec head -c 64 {} + > /dev/null 2>&1", timeout_s=60)
