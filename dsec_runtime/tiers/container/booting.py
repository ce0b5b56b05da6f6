"""Making a sandbox out of a node's makings, step by step, and undoing that from wherever it got."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.api.holding import HeldLayers
from dsec_layers.linux import procinfo
from dsec_runtime.errors import CreationFailedError
from dsec_runtime.linux import coresched, listening
from dsec_runtime.linux.ociruntime import Place
from dsec_runtime.resources import controlfiles
from dsec_runtime.resources.groups import PARENT, GroupLimits
from dsec_runtime.resources.identities import Identity
from dsec_runtime.resources.views import View
from dsec_runtime.spec import CpuClass, SandboxSpec
from dsec_runtime.tiers.container import bundle, names, roots
from dsec_runtime.tiers.container.node import Node
from dsec_runtime.tiers.container.places import Sandbox
from dsec_runtime.tiers.container.settings import Filled
from dsec_runtime.tiers.tier import Running

# The agent is killed after all others. The old file, unlike oom_score_adj, leaves where it was the
# least that its children may choose for themselves (fs/proc/base.c); -16 is -941 in the new one.
_PROTECTED: Final = -16
_EXPOSED: Final = 500  # of its commands, where the agent's cannot be lowered

# Told each step when it is done, so that a test can stop there.
Trace = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that has its layers and its disk, and is to be booted."""

    sandbox: Sandbox
    spec: SandboxSpec
    limits: Filled
    held: HeldLayers
    network: Path | None
    resolv_conf: Path | None
    scratch: tuple[str, ...] = ()


class _Seen(msgspec.Struct, frozen=True):
    """What the runtime and the sandbox see: paths, and processors."""

    root: Path
    network: Path | None
    cpus: tuple[int, ...]


def boot(node: Node, plan: Plan, trace: Trace) -> Running:
    """Mount its root, limit it and start its agent. Raises SandboxError or OSError."""
    sandbox, limits = plan.sandbox, plan.limits
    identity = node.identities.take(sandbox.id)
    trace("identity taken")
    layers = (node.places.skeleton, *plan.held.folders)
    roots.mount_root(sandbox, layers, identity, node.namespaces, node.closer, node.launcher)
    trace("root mounted")
    cpus = node.processors.take(sandbox.id, limits.cpu_cores)
    group = GroupLimits(
        memory_bytes=limits.memory_bytes,
        pids=limits.pids,
        cpu_cores=limits.cpu_cores,
        cpu_class=plan.spec.cpu_class,
        cpus=cpus,
        io_weight=limits.io_weight,
    )
    node.groups.make(sandbox.id, group)
    trace("group made")
    pid = _start(node, plan, identity, cpus or node.processors.all, trace)
    trace("started")
    node.groups.limit_cpu(sandbox.id, group)
    if plan.spec.cpu_class is CpuClass.LS and coresched.supported():
        coresched.give_cookie(pid)
    if node.may_protect:
        controlfiles.write(Path(f"/proc/{pid}/oom_adj"), _PROTECTED)
    start = procinfo.start_ticks(pid)
    if start is None:
        raise CreationFailedError(f"the agent of {sandbox.id} ended at once")
    run = plan.held.run
    return Running(
        id=sandbox.id,
        socket=str(sandbox.socket),
        pid=pid,
        pid_start=start,
        digests=plan.held.digests,
        env={**run.env, **plan.spec.env},
        workdir=plan.spec.workdir or run.workdir or "/",
        user=plan.spec.user or run.user,
        own={
            "memory_bytes": str(limits.memory_bytes),
            "cpus": ",".join(map(str, cpus or ())),
            "first_id": str(identity.first),
        },
    )


def undo(node: Node, sandbox: Sandbox, trace: Trace) -> None:
    """Remove what there is of a sandbox; its folder last. Raises OSError or TimeoutError.

    Its network is whose who made it.
    """
    node.groups.kill(sandbox.id)
    trace("killed")
    node.groups.remove(sandbox.id)
    trace("group removed")
    _remove(f"{node.places.runtime}/{sandbox.id}")
    node.launcher.wait_unstaged(sandbox.id)
    roots.unmount_root(sandbox, node.closer)
    trace("root unmounted")
    node.disks.remove(sandbox.folder)
    trace("disk removed")
    node.processors.release(sandbox.id)
    node.identities.release(sandbox.id)
    trace("identity released")
    node.environments.release(sandbox)
    trace("layers released")
    _remove(str(sandbox.folder))


def _remove(folder: str) -> None:
    """Remove a folder of files, if it is there; rmtree takes four times as long to do so."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):  # noqa: PTH208 # as Path takes long too
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
        try:
            os.rmdir(folder)  # noqa: PTH106
        except OSError:  # there are folders in it
            shutil.rmtree(folder)


@contextlib.contextmanager
def _reachable(network: Path | None) -> Iterator[Path | None]:
    """A path of the network namespace that holds in any mount namespace, for a block."""
    if network is None:
        yield None
        return
    fd = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{fd}")
    finally:
        os.close(fd)


def _views(node: Node, plan: Plan, seen: _Seen) -> list[View]:
    views = node.views.of(plan.sandbox.folder, seen.cpus, plan.limits.memory_bytes)
    if plan.resolv_conf is not None:
        views.append(View(plan.resolv_conf, "/etc/resolv.conf"))
    return [*views, *names.hosts(plan.sandbox.folder, plan.sandbox.root, plan.spec.hostname)]


def _config(node: Node, plan: Plan, seen: _Seen, identity: Identity) -> bytes:
    wish = bundle.Wish(
        root=seen.root,
        hostname=plan.spec.hostname,
        identity=identity,
        views=_views(node, plan, seen),
        network=seen.network,
        new_privileges=plan.spec.new_privileges,
        shm_bytes=int(plan.limits.memory_bytes * node.settings.shm_part),
        scratch=plan.scratch,
        command_oom_score=0 if node.may_protect else _EXPOSED,
        group=f"/{PARENT}/{plan.sandbox.id}" if node.runtime.joins_groups else None,
        cgroup_view=not node.layout.v1,
        annotations=node.filter.annotations,
    )
    return bundle.encoded(wish)


def _start(node: Node, plan: Plan, identity: Identity, cpus: tuple[int, ...], trace: Trace) -> int:
    """The pid of the first process."""
    sandbox = plan.sandbox

    def entered(pid: int) -> None:
        trace("spawned")
        node.groups.enter(sandbox.id, pid)
        trace("entered")

    with (
        listening.listening(sandbox.socket) as server,
        node.launcher.staged(sandbox.root, sandbox.id) as stage,
        _reachable(plan.network) as network,
    ):
        trace("staged")
        pid = node.runtime.run(
            sandbox.id,
            _config(node, plan, _Seen(stage.root, network, cpus), identity),
            Place(
                bundle=node.places.bundle,
                state=node.places.runtime,
                log=sandbox.folder / "log",
                pid=sandbox.folder / "pid",
            ),
            passed=(server.fileno(), node.agent),
            launch=stage.launch,
            entered=entered,
        )
    node.filter.learn(node.places.runtime / sandbox.id)
    return pid
