"""The configuration with which an OCI runtime makes a sandbox and starts its agent.

Source: the OCI runtime specification 1.0 (config.md, config-linux.md). Limits are not in it: the
cgroups are made before.
"""

from __future__ import annotations

import functools
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.linux.json_types import JsonObject
from dsec_runtime.resources.identities import COUNT, Identity
from dsec_runtime.resources.views import View
from dsec_runtime.tiers.container import seccomp

# What root in a sandbox may do there, by number: what Docker gives but for device nodes, audit and
# raw sockets. Source: include/uapi/linux/capability.h.
CAPABILITIES: Final = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_SYS_CHROOT": 18,
    "CAP_SETFCAP": 31,
}
_OF_COMMANDS: Final = sum(1 << number for number in CAPABILITIES.values())
# The agent alone has this one too: without it Landlock would cost commands their setuid programs.
_OF_THE_AGENT: Final = [*CAPABILITIES, "CAP_SYS_ADMIN"]

AGENT_FD: Final = 4  # 3 is its socket
PASSED: Final = 2
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/bus", "/proc/config.gz", "/proc/fs"),
    *("/proc/interrupts", "/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/key-users"),
    *("/proc/keys", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags"),
    *("/proc/latency_stats", "/proc/modules", "/proc/sched_debug", "/proc/scsi"),
    *("/proc/slabinfo", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats"),
    *("/proc/tty", "/proc/vmallocinfo", "/proc/zoneinfo"),
)
_READ_ONLY: Final = ("/proc/sys",)
_OWN_NAMESPACES: Final = ("pid", "mount", "ipc", "uts", "user", "cgroup")
_OPEN_FILES: Final = (1024, 524288)  # soft, hard; a high soft limit slows programs that close all


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is to be. `network` is a namespace; None is an empty one of its own.

    `group` is the cgroup's path, for a runtime that joins it by itself. `cgroup_view`: mount
    cgroup2, read-only, so that programs find their limits there. `scratch` are folders in memory,
    each of at most `shm_bytes`, as /dev/shm is.
    """

    root: Path
    hostname: str
    identity: Identity
    views: Sequence[View]
    network: Path | None
    new_privileges: bool
    shm_bytes: int
    scratch: tuple[str, ...] = ()
    command_oom_score: int
    group: str | None
    cgroup_view: bool
    annotations: Mapping[str, str]


def encoded(wish: Wish) -> bytes:
    """The content of config.json."""
    return msgspec.json.encode(_specification(wish))


def _specification(wish: Wish) -> JsonObject:
    shown = {view.target for view in wish.views}
    ids: list[JsonObject] = [{"containerID": 0, "hostID": wish.identity.first, "size": COUNT}]
    return {
        "ociVersion": "1.0.0",
        "hostname": wish.hostname,
        "annotations": dict(wish.annotations),
        "root": {"path": str(wish.root), "readonly": False},
        "process": _agent(wish),
        "mounts": _mounts(wish),
        "linux": {
            "namespaces": _namespaces(wish),
            "uidMappings": ids,
            "gidMappings": ids,
            "maskedPaths": [path for path in _MASKED if path not in shown],
            "readonlyPaths": list(_READ_ONLY),
            "seccomp": _seccomp(),
            **({"cgroupsPath": wish.group} if wish.group else {}),
        },
    }


def _agent(wish: Wish) -> JsonObject:
    options = [
        *(f"--capabilities={_OF_COMMANDS:x}", "--landlock"),
        f"--oom-score-adj={wish.command_oom_score}",
    ]
    if not wish.new_privileges:
        options.append("--no-new-privileges")
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], _OPEN_FILES[1])
    held = list(_OF_THE_AGENT)
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": [f"/proc/self/fd/{AGENT_FD}", *options],
        "env": [],
        "cwd": "/",
        "noNewPrivileges": False,
        "capabilities": {"bounding": held, "permitted": held, "effective": held},
        "rlimits": [
            {"type": "RLIMIT_NOFILE", "soft": min(most, _OPEN_FILES[0]), "hard": most},
            {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
        ],
    }


def _namespaces(wish: Wish) -> list[JsonObject]:
    network: JsonObject = {"type": "network"}
    if wish.network is not None:
        network["path"] = str(wish.network)
    own: list[JsonObject] = [{"type": kind} for kind in _OWN_NAMESPACES]
    return [*own, network]


def _mounts(wish: Wish) -> list[JsonObject]:
    shm = f"size={wish.shm_bytes}"
    view = [_mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro")]
    return [
        _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=1m"),
        _mount("/dev/pts", "devpts", *_PTS_OPTIONS),
        _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", shm),  # noqa: S108
        _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        *(_mount(path, "tmpfs", "nosuid", "nodev", "mode=1777", shm) for path in wish.scratch),
        *map(_bind, wish.views),
        *(view if wish.cgroup_view else []),
    ]


_PTS_OPTIONS: Final = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5")


def _mount(target: str, kind: str, *options: str) -> JsonObject:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _bind(view: View) -> JsonObject:
    return {
        "destination": view.target,
        "type": "bind",
        "source": str(view.source),
        "options": ["bind", "rprivate", "ro", "nosuid", "nodev", "noexec"],
    }


@functools.cache
def _seccomp() -> JsonObject:
    return seccomp.profile()
