"""Sandboxes on this machine for tests: a node over a home of its own, and commands in what it runs.

The base holds perl, which reaches every system call without a module.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.api import importing
from dsec_layers.api.mounting import stop_daemon
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import mount
from dsec_layers.model.reference import Reference
from dsec_runtime.channel.channel import Channel
from dsec_runtime.guest import binary, build
from dsec_runtime.spec import MIB, Environment, ExecEnd, ExecSpec, Limits, SandboxSpec
from dsec_runtime.tiers.container.driver import ContainerTier
from dsec_runtime.tiers.container.node import Node
from dsec_runtime.tiers.container.settings import ContainerSettings
from dsec_runtime.tiers.tier import Running
from tests.support.leftovers import mounts_below
from tests.support.rootfs import PROGRAMS, make_rootfs

BASE = "base/perl:1"
LIMITS = Limits(memory_bytes=96 * MIB, cpu_cores=1, pids=64, disk_bytes=64 * MIB)
_MORE = ("dd", "df", "head", "tail", "nproc", "perl", "seq", "sync", "yes", "find", "ln", "wc")
_ERRNO = "print $r == -1 ? $!+0 : 0;"
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ran:
    """A finished command of a sandbox."""

    end: ExecEnd
    stdout: str
    stderr: str

    @property
    def status(self) -> int:
        """128 + signal after a signal."""
        return self.end.status


@dataclass
class Box:
    """A running sandbox."""

    tier: ContainerTier
    running: Running

    @property
    def id(self) -> str:
        """Its id."""
        return self.running.id

    @property
    def folder(self) -> Path:
        """Its folder on the node."""
        return Path(self.running.socket).parent

    def run(self, *argv: str, user: str | None = None, timeout_s: float = 60) -> Ran:
        """Run a command to its end."""
        spec = ExecSpec(argv=argv, user=user, timeout_s=timeout_s)
        return asyncio.run(_run(self.running.socket, spec))

    def sh(self, script: str, *, timeout_s: float = 60) -> Ran:
        """Run a script to its end."""
        return self.run("sh", "-c", script, timeout_s=timeout_s)

    def ok(self, script: str) -> str:
        """What a script writes that must succeed."""
        ran = self.sh(script)
        assert ran.status == 0, ran
        return ran.stdout

    def perl(self, script: str) -> Ran:
        """Run a perl program to its end."""
        return self.run("perl", "-e", script)

    def syscall(self, number: int, *arguments: str) -> int:
        """The errno with which a system call ends; 0 when it succeeds. Arguments are perl's."""
        words = ", ".join((str(number), *arguments))
        ran = self.perl(f"my @a = ({words}); my $r = syscall($a[0], @a[1 .. $#a]); {_ERRNO}")
        assert ran.status == 0, ran
        return int(ran.stdout)


async def _run(socket: str, spec: ExecSpec) -> Ran:
    channel = await Channel.connect(socket)
    try:
        process = await channel.exec(spec, secrets.token_hex(8))
        parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        async for piece in process:
            parts[piece.stream].append(piece.data)
        end = await process.wait()
    finally:
        channel.close()
    out, err = (b"".join(parts[name]).decode(errors="replace") for name in ("stdout", "stderr"))
    return Ran(end, out, err)


@dataclass
class Sandboxes:
    """Makes sandboxes on a node."""

    home: Path
    node: Node
    tier: ContainerTier
    made: list[str] = field(default_factory=list)

    def spec(self, limits: Limits = LIMITS, **more: object) -> SandboxSpec:
        """A small one."""
        given = {"environment": Environment(reference=BASE), "limits": limits, **more}
        return SandboxSpec(**given)  # type: ignore[arg-type]

    def new_id(self) -> str:
        """An id that nobody has; what it becomes goes at the end."""
        self.made.append(f"t{secrets.token_hex(6)}")
        return self.made[-1]

    def create(self, spec: SandboxSpec | None = None) -> Box:
        """Create and boot one."""
        return Box(self.tier, self.tier.create(self.new_id(), spec or self.spec()))

    def fork(self, box: Box, count: int) -> list[Box]:
        """Fork one."""
        wanted = {self.new_id(): self.spec() for _ in range(count)}
        return [Box(self.tier, it) for it in self.tier.fork(box.running, wanted)]

    def destroy_all(self) -> None:
        """Destroy what was made."""
        for name in self.made:
            self.tier.destroy(name)
        self.made.clear()

    def left(self, *names: str) -> list[str]:
        """What there is on this machine of sandboxes, or of those with these ids."""
        self.node.closer.settle()
        groups = [name for name in self.node.groups.names() if name in names]
        mounts = mounts_below(self.node.places.sandboxes)
        wanted = [path for path in mounts if any(f"/{name}/" in path for name in names)]
        there = set(self.tier.leftovers(frozenset())) & set(names)
        loops = [line for line in _backing_files() if any(name in line for name in names)]
        return [*groups, *wanted, *sorted(there), *loops]


def _backing_files() -> list[str]:
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return found


def agent() -> Path:
    """The agent's binary, built when it is missing or old."""
    try:
        return binary.path()
    except CapabilityMissingError:
        build.build()
        binary.path.cache_clear()
        return binary.path()


def open_node(home: Path, **settings: object) -> Node:
    """The makings of sandboxes below a home."""
    chosen = {"spare_disks": 1, "launches": 2, **settings}
    return Node(Workbench(home), ContainerSettings(**chosen), agent=agent())  # type: ignore[arg-type]


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A new home with a base; nothing of it may be left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp")).resolve()
    try:
        make_rootfs(folder / "root", (*PROGRAMS, *_MORE))
        bench = Workbench(folder / "home")
        importing.import_(bench, str(folder / "root"), Reference.parse(BASE))
        with contextlib.ExitStack() as stack:
            stack.callback(_end, folder)
            yield folder / "home"
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def opened(home: Path, **settings: object) -> Iterator[Sandboxes]:
    """A node over a home; what it makes is gone at the end."""
    with contextlib.ExitStack() as stack:
        node = open_node(home, **settings)
        stack.callback(node.close)
        made = Sandboxes(home, node, ContainerTier(node))
        stack.callback(made.destroy_all)
        yield made


def _end(folder: Path) -> None:
    """End the daemon, and complain about mounts that are left."""
    home = folder / "home"
    if mount.mounted_at(home / "run/sandboxes"):
        mount.unmount(home / "run/sandboxes")
    stop_daemon(Workbench(home), force=True)
    left = mounts_below(folder)
    for target in reversed(left):
        mount.unmount(Path(target), lazy=True)
    assert left == []


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False


def wait_gone(pid: int) -> None:
    """Wait for the end of a process of the node's."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], _PATIENCE_S)[0]
    finally:
        os.close(handle)
