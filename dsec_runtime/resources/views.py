"""What a sandbox sees of the machine: its own limits, in the files where programs look for them.

    FOLDER/<boot>/<cpus>/cpuinfo    /proc/cpuinfo of these processors
    FOLDER/<boot>/<cpus>/stat       /proc/stat of them, as it was when it was made
    FOLDER/<boot>/<cpus>/sys/       all of /sys: the processors, nothing of the node's devices
    FOLDER/<boot>/nothing/          folders of /proc that tell of the node
    <sandbox>/meminfo               /proc/meminfo; told anew whenever its use is looked at

With lxcfs these files move by themselves; then it is asked instead (`LXCFS`). Sources: proc(5),
sysfs-devices-system-cpu in the kernel's ABI documents.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.linux import mount, procinfo

LXCFS: Final = Path("/var/lib/lxcfs/proc")
_CPU: Final = re.compile(r"^cpu(\d+) ")
_LXCFS_FILES: Final = ("cpuinfo", "meminfo", "stat", "uptime", "loadavg", "swaps", "diskstats")
_HIDDEN: Final = ("acpi", "asound", "bus", "fs", "irq", "scsi", "tty")
_EMPTY_FOLDERS: Final = ("block", "bus", "class/net", "dev", "firmware", "fs/cgroup", "module")


class View(msgspec.Struct, frozen=True):
    """A file or folder of the node, shown read-only at `target` in the sandbox."""

    source: Path
    target: str


class Views:
    """Makes them; `folder` is for those that sandboxes share. Safe for many threads.

    `hide`: show an empty folder in the place of those that tell of the node. Runtimes mount a file
    system of its own on each that they are told to mask, 6 KiB in the kernel.
    """

    def __init__(self, folder: Path, *, hide: bool) -> None:
        self._folder = folder / procinfo.boot_id()  # what runs goes on to look at them
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in folder.iterdir():
            if other != self._folder:
                shutil.rmtree(other)
        self._lxcfs = mount.mounted_at(LXCFS.parent) is not None
        self._made: dict[tuple[int, ...], Path] = {}
        nothing = self._folder / "nothing"
        nothing.mkdir(mode=0o555, exist_ok=True)
        there = [f"/proc/{name}" for name in _HIDDEN if Path("/proc", name).is_dir()]
        self._hidden = [View(nothing, path) for path in there if hide]

    def of(self, sandbox: Path, cpus: Sequence[int], memory_bytes: int) -> list[View]:
        """What to show to a sandbox that has these processors and this memory. Raises OSError."""
        shared = self._shared(tuple(cpus))
        sys = View(shared / "sys", "/sys")
        if self._lxcfs:
            names = [name for name in _LXCFS_FILES if (LXCFS / name).exists()]
            shown = [View(LXCFS / name, f"/proc/{name}") for name in names]
            return [sys, *self._hidden, *shown]
        tell_memory(sandbox, memory_bytes, 0)
        files = [View(shared / name, f"/proc/{name}") for name in ("cpuinfo", "stat")]
        return [sys, *self._hidden, *files, View(sandbox / "meminfo", "/proc/meminfo")]

    def _shared(self, cpus: tuple[int, ...]) -> Path:
        if (found := self._made.get(cpus)) is not None:
            return found
        path = self._folder / "-".join(map(str, cpus))
        if not path.exists():
            aside = self._folder / f"{secrets.token_hex(8)}.aside"
            _write_cpus(aside, cpus)
            try:
                aside.rename(path)
            except OSError:  # another thread was faster
                shutil.rmtree(aside)
        self._made[cpus] = path
        return path


def tell_memory(sandbox: Path, limit_bytes: int, used_bytes: int) -> None:
    """Write what /proc/meminfo says in a sandbox."""
    total, used = limit_bytes // 1024, min(used_bytes, limit_bytes) // 1024
    free = total - used
    rows = {"MemTotal": total, "MemFree": free, "MemAvailable": free, "Buffers": 0, "Cached": 0}
    rows |= {"SwapCached": 0, "Active": used, "Inactive": 0, "SwapTotal": 0, "SwapFree": 0}
    rows |= {"Dirty": 0, "Writeback": 0, "AnonPages": used, "Mapped": 0, "Shmem": 0, "Slab": 0}
    content = "".join(f"{name + ':':<15}{value:>15} kB\n" for name, value in rows.items())
    fd = os.open(sandbox / "meminfo", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444)
    try:
        os.pwrite(fd, content.encode(), 0)  # of one length, so no reader sees a half
    finally:
        os.close(fd)


def _write_cpus(folder: Path, cpus: Sequence[int]) -> None:
    there = len(cpus)
    cpu = folder / "sys/devices/system/cpu"
    cpu.mkdir(parents=True)
    for name in _EMPTY_FOLDERS:
        (folder / "sys" / name).mkdir(parents=True, exist_ok=True)
    span = "0\n" if there == 1 else f"0-{there - 1}\n"
    for name in ("online", "possible", "present"):
        (cpu / name).write_text(span)
    for number in range(there):
        (cpu / f"cpu{number}").mkdir()
    (folder / "cpuinfo").write_text(_cpuinfo(there))
    (folder / "stat").write_text(_stat(there))


def _cpuinfo(count: int) -> str:
    blocks = Path("/proc/cpuinfo").read_text().split("\n\n")
    return "\n\n".join(blocks[:count]).rstrip("\n") + "\n\n"


def _stat(count: int) -> str:
    """The first `count` processors' lines, the rest as it is."""
    kept = []
    for line in Path("/proc/stat").read_text().splitlines():
        match = _CPU.match(line)
        if match is None or int(match[1]) < count:
            kept.append(line)
    return "\n".join(kept) + "\n"
