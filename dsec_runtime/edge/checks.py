"""What this machine can do for sandboxes, and how to get what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from dsec_layers.errors import DsecError
from dsec_layers.linux import mount
from dsec_layers.linux.capabilities import Capability, missing
from dsec_runtime.guest import binary
from dsec_runtime.linux import corescheduling, ociruntime
from dsec_runtime.network import capability as networks
from dsec_runtime.network import services
from dsec_runtime.resources import layout
from dsec_runtime.resources.views import LXCFS


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing. Without what is `needed` no edge starts; the rest is told by `detail`."""

    name: str
    needed: bool
    works: bool
    detail: str = ""
    hint: str | None = None


def all_checks(home: Path) -> Iterator[Check]:
    """Each is tried as it is asked for; nothing is left of it."""
    for each in Capability:
        error = missing(each)
        yield _check(each.value, error, needed=True)
    yield _tried("runtime", lambda: ociruntime.find().program)
    yield _tried("agent", lambda: str(binary.path()))
    yield _tried("cgroups", _cgroups)
    yield _check("networks", networks.missing(), "rules, names, counts")
    yield _pressure()
    yield _swap()
    yield _cores()
    yield _lxcfs()
    yield _services(home)


def _check(name: str, error: DsecError | None, detail: str = "", *, needed: bool = False) -> Check:
    if error is None:
        return Check(name=name, needed=needed, works=True, detail=detail)
    return Check(name=name, needed=needed, works=False, detail=error.message, hint=error.hint)


def _tried(name: str, find: Callable[[], str]) -> Check:
    try:
        detail = find()
    except DsecError as error:
        return _check(name, error, needed=True)
    return _check(name, None, detail, needed=True)


def _cgroups() -> str:
    found = layout.find()
    layout.groups(found)
    if not found.v1:
        return "v2"
    return f"v1 ({', '.join(sorted(found.v1))})" + (", beside v2" if found.mixed else "")


def _pressure() -> Check:
    works = Path("/proc/pressure/memory").exists()
    return Check(
        name="pressure",
        needed=False,
        works=works,
        detail="admission looks at it" if works else "admission sees free memory only",
        hint=None if works else "boot with psi=1",
    )


def _swap() -> Check:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    kib = int(lines["SwapTotal"].split()[0])
    return Check(
        name="swap",
        needed=False,
        works=kib > 0,
        detail=f"{kib >> 10} MiB for paused sandboxes" if kib else "pauses give back files only",
        hint=None if kib else "add a swap file or zram, so that pauses give memory back",
    )


def _cores() -> Check:
    works = corescheduling.is_available()
    return Check(
        name="core-scheduling",
        needed=False,
        works=works,
        detail="" if works else "sandboxes may share a core's threads with strangers",
        hint=None if works else "this needs SMT and a kernel with CONFIG_SCHED_CORE",
    )


def _lxcfs() -> Check:
    works = mount.mounted_at(LXCFS.parent) is not None
    return Check(
        name="lxcfs",
        needed=False,
        works=works,
        detail="/proc of sandboxes moves with their use"
        if works
        else "limits are told; /proc/stat stands still, uptime and loadavg are the node's",
        hint=None if works else "install lxcfs and start it before the edge",
    )


def _services(home: Path) -> Check:
    path = home / "edge/services.toml"
    try:
        known = sorted(services.read(path).services)
    except DsecError as error:
        return _check("services", error)
    return Check(
        name="services",
        needed=False,
        works=True,
        detail=", ".join(known) or "none named yet; found when a rule asks for one",
        hint=f"{path} names the hosts of each",
    )
