"""The configuration with which an OCI runtime runs one command.

Source: the OCI runtime specification 1.0 (config.md, config-linux.md). Capabilities, masked and
read-only paths are those that Docker gives by default, so that Dockerfiles behave as they do there.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from dsec_layers.linux import seccomp
from dsec_layers.linux.json_types import Json, JsonObject
from dsec_layers.linux.users import User

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Network = Literal["host", "none"]

_CAPABILITIES = [
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL"),
    *("CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID"),
    *("CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"),
]
_MASKED = [
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys"),
    *("/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list"),
    *("/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"),
]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_OPEN_FILES = (1024, 524288)  # soft, hard; a high soft limit slows programs that close them all


class Bind(msgspec.Struct, frozen=True):
    """A file or folder of this machine, shown at `target` in the container."""

    source: Path
    target: str
    read_only: bool = True

    @property
    def is_folder(self) -> bool:
        """Whether it is mounted on a folder."""
        return self.source.is_dir()


class Tmpfs(msgspec.Struct, frozen=True):
    """An empty folder in memory at `target`, of at most `size_bytes`."""

    target: str
    size_bytes: int | None = None
    is_folder: Literal[True] = True


Mount = Bind | Tmpfs


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command in a container.

    `rootfs` is a mounted root file system. `env` gets PATH and HOME when it lacks them. `user` is
    what Docker's USER takes. With `network` "none" there is only loopback. `stdin` is empty unless
    it is inherited; `tty` gives the command a terminal of the size of ours.
    """

    rootfs: Path
    argv: Sequence[str]
    env: Mapping[str, str] = {}
    cwd: str = "/"
    user: str | None = None
    network: Network = "host"
    hostname: str = "dsec"
    binds: Sequence[Mount] = ()
    read_only: bool = False
    stdin: Literal["empty", "inherited"] = "empty"
    tty: bool = False


def specification(
    command: Command, user: User, binds: Sequence[Mount], *, cgroup: str
) -> JsonObject:
    """The content of config.json for `command`.

    `binds` are mounted in this order; `cgroup` is a name for the cgroup that keeps devices away.
    """
    return {
        "ociVersion": "1.0.0",
        "hostname": command.hostname,
        "root": {"path": str(command.rootfs), "readonly": command.read_only},
        "process": _process(command, user),
        "mounts": [*_system_mounts(), *(_bind(bind) for bind in binds)],
        "linux": {
            "namespaces": [{"type": kind} for kind in _namespaces(command)],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
            "seccomp": seccomp.profile(),
            "cgroupsPath": f"/{cgroup}",
            "resources": {"devices": _device_rules()},
        },
    }


def _process(command: Command, user: User) -> JsonObject:
    env = {"PATH": DEFAULT_PATH, "HOME": user.home, **command.env}
    if command.tty:
        env.setdefault("TERM", "xterm")
    usable: Json = _CAPABILITIES if user.uid == 0 else []
    size = {"consoleSize": _terminal_size()} if command.tty else {}
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], _OPEN_FILES[1])
    return {
        "terminal": command.tty,
        **size,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": user.groups},
        "args": list(command.argv),
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": command.cwd,
        "noNewPrivileges": False,  # setuid programs work, as builds expect
        "capabilities": {
            "bounding": _CAPABILITIES,
            "permitted": usable,
            "effective": usable,
        },
        "rlimits": [
            {"type": "RLIMIT_NOFILE", "soft": min(most, _OPEN_FILES[0]), "hard": most},
            {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
        ],
    }


def _terminal_size() -> JsonObject:
    columns, lines = shutil.get_terminal_size()
    return {"height": lines, "width": columns}


def _namespaces(command: Command) -> list[str]:
    return ["pid", "mount", "ipc", "uts", *(["network"] if command.network == "none" else [])]


def _system_mounts() -> list[JsonObject]:
    return [
        _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", *_PTS_OPTIONS),
        _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777"),  # noqa: S108
        _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
    ]


def _device_rules() -> list[JsonObject]:
    """Any device node may be made, since layers may hold them; only the harmless can be opened."""
    harmless: list[JsonObject] = [
        {"allow": True, "type": "c", "access": "rwm", "major": major, "minor": minor}
        for major, minor in _HARMLESS
    ]
    terminals: JsonObject = {"allow": True, "type": "c", "access": "rwm", "major": 136}
    make: list[JsonObject] = [{"allow": True, "type": kind, "access": "m"} for kind in "bc"]
    return [{"allow": False, "access": "rwm"}, *make, *harmless, terminals]


# null, zero, full, random, urandom, tty, ptmx
_HARMLESS = ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2))
_PTS_OPTIONS = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5")


def _mount(target: str, kind: str, *options: str) -> JsonObject:
    return {"destination": target, "type": kind, "source": kind, "options": options}


def _bind(bind: Mount) -> JsonObject:
    if isinstance(bind, Tmpfs):
        size = [] if bind.size_bytes is None else [f"size={bind.size_bytes}"]
        return _mount(bind.target, "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", *size)
    options = ["rbind", "rprivate", "ro" if bind.read_only else "rw"]
    return {
        "destination": bind.target,
        "type": "bind",
        "source": str(bind.source),
        "options": options,
    }
