"""The container tier: see `tiers.tier.TierDriver`, and docs/containers.md for what isolates.

A sandbox's folder is made first and removed last, so the folders are the list of what there is.
`destroy` undoes whatever is there of a sandbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dsec_layers.api.holding import HeldLayers
from dsec_layers.errors import DsecError
from dsec_layers.linux import procinfo
from dsec_runtime.errors import InfrastructureError, InvalidRequestError, StateConflictError
from dsec_runtime.linux.kmsg import KernelLog, Victim
from dsec_runtime.resources import diskimages, views
from dsec_runtime.spec import USUAL_SNAPSHOT, SandboxSpec, SnapshotOptions
from dsec_runtime.tiers.container import booting, failures, pausing, snapshots
from dsec_runtime.tiers.container.booting import Plan, Trace
from dsec_runtime.tiers.container.node import Node
from dsec_runtime.tiers.container.places import Sandbox
from dsec_runtime.tiers.container.settings import Filled
from dsec_runtime.tiers.tier import OomKill, Running, Usage

_log = logging.getLogger(__name__)

# The network namespace of a sandbox, made before it boots; None is an empty one.
FindNetwork = Callable[[str, SandboxSpec], Path | None]


def no_network(_sandbox: str, _spec: SandboxSpec) -> Path | None:
    """A sandbox that has but its loopback."""
    return None


class ContainerTier:
    """See TierDriver. One call at a time for each sandbox; any number for all."""

    def __init__(
        self,
        node: Node,
        *,
        network: FindNetwork = no_network,
        resolv_conf: Path | None = None,
        scratch: Sequence[str] = (),
        trace: Trace = lambda _: None,
    ) -> None:
        """`resolv_conf` is shown as /etc/resolv.conf in sandboxes that have a network.

        `scratch` are folders in memory, for everybody in the sandbox to write to.
        """
        self._node = node
        self._network = network
        self._resolv_conf = resolv_conf
        self._scratch = tuple(scratch)
        self._trace = trace
        self._kills = _Kills()

    def create(self, sandbox: str, spec: SandboxSpec) -> Running:
        """See TierDriver."""
        place = self._new_folder(sandbox)
        with self._undone(place):
            limits = self._node.settings.filled(spec.limits)
            held = self._node.environments.acquire(place, spec.environment)
            self._trace("layers held")
            self._node.disks.make(place.folder, limits.disk_bytes)
            self._trace("disk made")
            plan = self._plan(place, spec, limits, held)
            return booting.boot(self._node, plan, self._trace)

    def reattach(self, running: Running) -> bool:
        """See TierDriver."""
        alive = procinfo.start_ticks(running.pid) == running.pid_start
        if not alive or running.pid not in self._node.groups.processes(running.id):
            return False
        try:
            self._let_go_on(self._node.places.sandbox(running.id))
        except InfrastructureError as error:  # a part of it is gone
            _log.error("%s", error.message)
            return False
        cpus = tuple(int(word) for word in running.own.get("cpus", "").split(",") if word)
        self._node.processors.know(running.id, cpus)
        return True

    def destroy(self, sandbox: str) -> None:
        """See TierDriver."""
        place = self._node.places.sandbox(sandbox)
        with failures.told(f"something of {sandbox} cannot be removed"):
            booting.undo(self._node, place, self._trace)
        self._kills.forget(sandbox)

    def pause(self, running: Running) -> int:
        """See TierDriver."""
        place = self._node.places.sandbox(running.id)
        place.paused.touch()
        try:
            return pausing.pause(self._node.groups, running.id)
        except BaseException:
            place.paused.unlink()
            raise

    def resume(self, running: Running) -> None:
        """See TierDriver."""
        pausing.resume(self._node.groups, running.id)
        self._node.places.sandbox(running.id).paused.unlink(missing_ok=True)

    def snapshot(
        self, running: Running, reference: str, options: SnapshotOptions = USUAL_SNAPSHOT
    ) -> str:
        """See TierDriver."""
        place = self._node.places.sandbox(running.id)
        with (
            failures.told(f"no snapshot of {running.id}"),
            pausing.still(self._node.groups, running.id),
        ):
            return snapshots.commit(self._node.bench, place, running.digests, reference, options)

    def fork(self, running: Running, sandboxes: Mapping[str, SandboxSpec]) -> list[Running]:
        """See TierDriver. All copies are of one moment; the disk keeps its size."""
        source = self._node.places.sandbox(running.id)
        plans: list[Plan] = []
        with contextlib.ExitStack() as undone:
            with (
                failures.told(f"{running.id} cannot be forked"),
                pausing.still(self._node.groups, running.id),
            ):
                for sandbox, spec in sandboxes.items():
                    place = self._new_folder(sandbox)
                    undone.enter_context(self._undone(place))
                    plans.append(self._copied(source, place, spec))
            return [booting.boot(self._node, plan, self._trace) for plan in plans]

    def usage(self, running: Running) -> Usage:
        """See TierDriver. What the sandbox sees of its memory is told anew too."""
        place = self._node.places.sandbox(running.id)
        used = self._node.groups.usage(running.id)
        if limit := int(running.own.get("memory_bytes", "0")):
            views.tell_memory(place.folder, limit, used.memory_bytes)
        disk = os.statvfs(place.disk)
        return Usage(
            memory_bytes=used.memory_bytes,
            swap_bytes=used.swap_bytes,
            cpu_s=used.cpu_s,
            pids=used.pids,
            disk_bytes=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
            oom_kills=used.oom_kills,
            throttled_s=used.throttled_s,
        )

    def last_oom(self, running: Running) -> OomKill | None:
        """See TierDriver."""
        limit = int(running.own.get("memory_bytes", "0"))
        found = self._kills.of(running.id)
        if found is None:
            return None
        return OomKill(process=found.process, pid=found.pid, limit_bytes=limit)

    def leftovers(self, known: frozenset[str]) -> list[str]:
        """See TierDriver."""
        there = {place.id for place in self._node.places.all()}
        there |= self._node.identities.holders()
        there |= {path.name for path in self._node.places.runtime.iterdir() if path.is_dir()}
        return sorted(it for it in there - known if not it.startswith("."))

    def root(self, running: Running) -> Path | None:
        """See TierDriver."""
        return self._node.places.sandbox(running.id).root

    def _let_go_on(self, place: Sandbox) -> None:
        """Undo what held a sandbox still for a snapshot or a fork, when it was killed meanwhile."""
        with failures.told(f"{place.id} does not go on"):
            diskimages.go_on(place.disk)
            if self._node.groups.frozen(place.id) and not place.paused.exists():
                self._node.groups.thaw(place.id)

    def _new_folder(self, sandbox: str) -> Sandbox:
        place = self._node.places.sandbox(sandbox)
        try:
            place.folder.mkdir(mode=0o700)
        except FileExistsError:
            raise StateConflictError(f"there is a sandbox {sandbox} already") from None
        self._trace("folder made")
        return place

    def _copied(self, source: Sandbox, place: Sandbox, spec: SandboxSpec) -> Plan:
        limits = self._node.settings.filled(spec.limits)
        size = (source.folder / "disk.img").stat().st_size
        if limits.disk_bytes != size:
            raise InvalidRequestError(
                "a fork has a disk of the size of the first", hint=f"ask for {size} bytes"
            )
        held = self._node.environments.share(source, place)
        snapshots.copy_disk(self._node.disks, source, place)
        return self._plan(place, spec, limits, held)

    def _plan(self, place: Sandbox, spec: SandboxSpec, limits: Filled, held: HeldLayers) -> Plan:
        network = self._network(place.id, spec)
        return Plan(
            sandbox=place,
            spec=spec,
            limits=limits,
            held=held,
            network=network,
            resolv_conf=self._resolv_conf if network else None,
            scratch=self._scratch,
        )

    @contextlib.contextmanager
    def _undone(self, place: Sandbox) -> Iterator[None]:
        """On an error nothing of the sandbox is left, and the error is one of ours."""
        try:
            with failures.creating(place.id):
                yield
        except BaseException:
            with contextlib.suppress(OSError, DsecError):  # told by `leftovers`, and tried again
                booting.undo(self._node, place, self._trace)
            raise


class _Kills:
    """The last process of each sandbox that the kernel killed for want of memory."""

    def __init__(self) -> None:
        self._log: KernelLog | None = None
        self._last: dict[str, Victim] = {}
        with contextlib.suppress(OSError):  # then kills are counted, and not named
            self._log = KernelLog()

    def of(self, sandbox: str) -> Victim | None:
        if self._log is not None:
            for victim in self._log.victims():
                self._last[Path(victim.cgroup).name] = victim
        return self._last.get(sandbox)

    def forget(self, sandbox: str) -> None:
        self._last.pop(sandbox, None)
