"""What all sandboxes of a node are made with: one of each, from its start to its end."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

from dsec_layers.api.workbench import Workbench
from dsec_layers.linux import mount
from dsec_runtime.guest import binary
from dsec_runtime.linux import agentfile, launcher, ociruntime, privileges
from dsec_runtime.linux.closer import Closer
from dsec_runtime.linux.userns import UserNamespaces
from dsec_runtime.resources import layout
from dsec_runtime.resources.disks import Disks
from dsec_runtime.resources.identities import Identities
from dsec_runtime.resources.processors import Processors
from dsec_runtime.resources.views import Views
from dsec_runtime.tiers.container import bundle, roots, seccomp
from dsec_runtime.tiers.container.environments import Environments
from dsec_runtime.tiers.container.places import Places
from dsec_runtime.tiers.container.settings import ContainerSettings

_NAMESPACES: Final = 64  # kept of user namespaces: two for each range of ids, used last first


def _allow_descriptors() -> None:
    """Each sandbox takes a dozen while it is made, and its caller takes some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Node:
    """The makings of sandboxes below the home of `bench`; one process at a time has them.

    Making it starts threads and prepares what sandboxes will need; `close` ends that, and leaves
    the sandboxes running. Raises UnsupportedError and CapabilityMissingError.
    """

    def __init__(
        self, bench: Workbench, settings: ContainerSettings, *, agent: Path | None = None
    ) -> None:
        _allow_descriptors()
        self.bench = bench
        self.settings = settings
        self.places = Places(bench.home.root.resolve())
        found = layout.find()
        self.layout = found
        self.groups = layout.groups(found)
        self.runtime = ociruntime.find(settings.runtime)
        self.agent = agentfile.load(agent or binary.path())
        self.may_protect = privileges.holds(privileges.SYS_RESOURCE)
        self._make_folders()
        self.environments = Environments(bench, self.places, warm=settings.warm_layers)
        self.identities = Identities(self.places.identities)
        self.processors = Processors()
        self.filter = seccomp.Compiled()
        self.views = Views(self.places.views, hide=self.runtime.binds_in_proc)
        self.namespaces = UserNamespaces(_NAMESPACES)
        self.closer = Closer()
        self.disks = Disks(
            self.places.disk_templates,
            self.places.sandboxes,
            self.closer,
            spares=settings.spare_disks,
        )
        hidden = (found.v2,) if found.mixed and found.v2 else ()
        self.launcher = launcher.Launcher(
            settings.launches, self.places.home / "run", hidden=hidden
        )

    def warm_up(self) -> None:
        """Make ahead what the first sandboxes would wait for."""
        self.disks.foresee(self.settings.disk_bytes)

    def close(self) -> None:
        """Let go of all that is made ahead, and of layers that nobody uses."""
        self.launcher.close()
        self.disks.close()
        self.closer.close()
        self.namespaces.close()
        self.environments.close()
        os.close(self.agent)
        if not self.places.all():
            with contextlib.suppress(OSError):
                mount.unmount(self.places.sandboxes)

    def _make_folders(self) -> None:
        for folder in (self.places.sandboxes, self.places.runtime):
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        launcher.keep_private(self.places.sandboxes)
        roots.make_skeleton(self.places.skeleton)
        ociruntime.make_bundle(self.places.bundle, bundle.PASSED)
