"""Where a node keeps its containers.

HOME/run/sandboxes/            mounted on itself, so that no other namespace sees below
    <id>/                      0700, made first and removed last: all of a sandbox is found here
        agent.sock             where the agent listens; reachable on the node alone
        layers                 a link to the name under which its layers are held
        disk.img disk/         the writable disk
        root/                  the overlay
        meminfo hosts          what it sees of its memory and of names
        log pid                the runtime's complaints; the pid
        paused                 while it is, by request
HOME/run/environments/         the layers that are held, see environments.py
HOME/run/identities/           who has which range of ids
HOME/run/runtime/              the OCI runtime's state
HOME/run/bundle/               the bundle of all
HOME/run/skeleton/             what a runtime mounts on, below all layers of a root
HOME/run/views/                what sandboxes see of the processors
HOME/run/disk-templates/       formatted images
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dsec_runtime.errors import InvalidRequestError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Sandbox:
    """The folder of one. Paths are made once each: they are a fifth of our own work for one."""

    folder: Path

    @cached_property
    def id(self) -> str:
        """Its name, which its cgroup and container have too."""
        return self.folder.name

    @cached_property
    def socket(self) -> Path:
        """See the module."""
        return self.folder / "agent.sock"

    @cached_property
    def layers(self) -> Path:
        """See the module."""
        return self.folder / "layers"

    @cached_property
    def disk(self) -> Path:
        """See the module."""
        return self.folder / "disk"

    @cached_property
    def paused(self) -> Path:
        """See the module."""
        return self.folder / "paused"

    @cached_property
    def root(self) -> Path:
        """See the module."""
        return self.folder / "root"


@dataclass(frozen=True)
class Places:
    """The folders of a node, below its home."""

    home: Path

    @cached_property
    def sandboxes(self) -> Path:
        """See the module."""
        return self.home / "run" / "sandboxes"

    @cached_property
    def environments(self) -> Path:
        """See the module."""
        return self.home / "run" / "environments"

    @cached_property
    def identities(self) -> Path:
        """See the module."""
        return self.home / "run" / "identities"

    @cached_property
    def runtime(self) -> Path:
        """See the module."""
        return self.home / "run" / "runtime"

    @cached_property
    def bundle(self) -> Path:
        """See the module."""
        return self.home / "run" / "bundle"

    @cached_property
    def views(self) -> Path:
        """See the module."""
        return self.home / "run" / "views"

    @cached_property
    def skeleton(self) -> Path:
        """See the module."""
        return self.home / "run" / "skeleton"

    @cached_property
    def disk_templates(self) -> Path:
        """See the module."""
        return self.home / "run" / "disk-templates"

    def sandbox(self, name: str) -> Sandbox:
        """The folder of a sandbox, which need not exist. Raises InvalidRequestError."""
        if not _ID.fullmatch(name):
            raise InvalidRequestError(f"{name!r} is no id of a sandbox")
        return Sandbox(self.sandboxes / name)

    def all(self) -> list[Sandbox]:
        """Those of which there is something."""
        return [Sandbox(path) for path in sorted(self.sandboxes.iterdir()) if path.is_dir()]
