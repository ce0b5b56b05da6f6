"""Virtual machines for tests: a Debian kernel under QEMU whose root is this machine's files.

The kernel comes from `scripts/guest-kernel`. The guest sees the files of this machine read-only, by
virtio-fs, so that whatever is installed here runs there; /tmp, /run and /var/tmp are its own, and
it has a disk, swap and cgroup v2 with all controllers. It runs one job and switches itself off.
The processor is emulated (TCG), as it is on machines without virtualisation: some ten times slower.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = Path(sys.prefix) / "kernel"
QEMU = "qemu-system-x86_64"
_INIT = Path(__file__).with_name("machine_init.sh")
_SERVERS = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
_POLL_S = 0.02
_SHOWN_BYTES = 8000
# A program that ends with whoever started it.
_BOUND = ("setpriv", "--pdeathsig", "KILL")


@dataclass(frozen=True)
class Machine:
    """What a guest has. The disk and the swap are empty at each boot."""

    cpus: int = 1
    memory_mib: int = 1024
    disk_mib: int = 4096
    swap_mib: int = 512


@dataclass(frozen=True)
class Ran:
    """A job that ended by itself: its status, and what it wrote."""

    status: int
    output: str


def missing() -> str | None:
    """What this machine lacks for it."""
    if os.uname().machine != "x86_64":
        return "guests are of x86-64 only"
    if shutil.which(QEMU) is None or _server() is None:
        return "there is no QEMU with virtiofsd (see packages.txt)"
    if not (KERNEL / "vmlinuz").exists():
        return "there is no kernel (scripts/guest-kernel)"
    return None


def run(
    argv: Sequence[str],
    folder: Path,
    *,
    machine: Machine = Machine(),  # frozen
    environment: Mapping[str, str] | None = None,
    limit_s: float = 900,
) -> Ran:
    """Boot a machine and run a command in it, as root in the root of the repository.

    What belongs to the boot is in `folder`. Raises AssertionError with the end of the console and
    of the output when the guest does not come to the end of the job.
    """
    output, status = folder / "output", folder / "status"
    _write_job(folder / "job", argv, environment or {})
    for name, size in (("disk", machine.disk_mib), ("swap", machine.swap_mib)):
        with (folder / name).open("wb") as file:
            file.truncate(size << 20)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", folder / "disk"], check=True)
    with _files_served(folder / "files.sock", folder / "files.log"):
        ended = _boot(machine, folder, limit_s)
    if not ended or not status.read_text():
        raise AssertionError(
            f"the guest did not {'end its job' if ended else f'end within {limit_s:.0f} s'}\n"
            + "".join(f"--- {name}\n{_end_of(folder / name)}\n" for name in _TOLD)
        )
    return Ran(int(status.read_text()), output.read_text(errors="replace"))


_TOLD = ("console", "qemu.log", "files.log", "output")


def _write_job(path: Path, argv: Sequence[str], environment: Mapping[str, str]) -> None:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    path.write_text("\n".join([f"cd {shlex.quote(str(ROOT))}", *lines, shlex.join(argv), ""]))


def _boot(machine: Machine, folder: Path, limit_s: float) -> bool:
    """Run QEMU to its end; whether it came in time."""
    words = [QEMU, *_devices(machine, folder), "-append", _command_line(folder)]
    with _process(words, folder / "qemu.log") as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
            return True
        return False


def _devices(machine: Machine, folder: Path) -> list[str]:
    memory = f"memory-backend-memfd,id=memory,size={machine.memory_mib}M,share=on"
    return [
        *("-machine", "q35,memory-backend=memory", "-accel", "tcg,thread=multi"),
        *("-cpu", "Nehalem", "-smp", str(machine.cpus)),
        *("-m", str(machine.memory_mib), "-object", memory),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-serial", f"file:{folder}/console", "-kernel", f"{KERNEL}/vmlinuz"),
        *("-chardev", f"socket,id=files,path={folder}/files.sock"),
        *("-device", "vhost-user-fs-pci,chardev=files,tag=files"),
        *_drive(folder / "disk"),
        *_drive(folder / "swap"),
        *("-device", "virtio-serial-pci"),
        *_port(folder / "output"),
        *_port(folder / "status"),
    ]


def _drive(path: Path) -> list[str]:
    return ["-drive", f"file={path},format=raw,if=virtio,cache=unsafe,discard=unmap"]


def _port(path: Path) -> list[str]:
    """What the guest writes to the port of that name is in the file."""
    return [
        *("-chardev", f"file,id={path.name},path={path}"),
        *("-device", f"virtserialport,chardev={path.name},name={path.name}"),
    ]


def _command_line(folder: Path) -> str:
    """Under TCG the kernel must be told the frequency of the clock, or may never find it.

    With the same addresses in each process, translated code is used again. The last line leaves out
    what takes time and no test looks at.
    """
    return (
        f"console=ttyS0 loglevel=5 panic=-1 root=files rootfstype=virtiofs ro init={_INIT} "
        f"kernel={KERNEL} job={folder}/job shown={ROOT}:{folder} "
        f"tsc_early_khz={_clock_khz()} no_timer_check norandmaps rcupdate.rcu_expedited=1 "
        "mitigations=off lsm=landlock audit=0 nowatchdog cryptomgr.notests"
    )


def _clock_khz() -> int:
    found = re.search(r"^cpu MHz\s*: ([\d.]+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert found is not None
    return round(float(found[1]) * 1000)


@contextlib.contextmanager
def _files_served(socket: Path, log: Path) -> Iterator[None]:
    """It ends by itself with QEMU. The other way of keeping it in would copy all mounts."""
    server = _server()
    assert server is not None
    words = [server, f"--socket-path={socket}", "-o", "source=/,sandbox=chroot,cache=always"]
    with _process([*words, "--rlimit-nofile=0"], log) as process:
        while not socket.exists():
            assert process.poll() is None, log.read_text()
            time.sleep(_POLL_S)
        yield


@contextlib.contextmanager
def _process(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*_BOUND, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _server() -> str | None:
    return next((path for path in _SERVERS if Path(path).exists()), None)


def _end_of(path: Path) -> str:
    return path.read_text(errors="replace")[-_SHOWN_BYTES:] if path.exists() else ""
