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
from pathlib import Path

import msgspec

from dsec_runtime.errors import InvalidRequestError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Sandbox(msgspec.Struct, frozen=True):
    """The folder of one."""

    folder: Path

    @property
    def id(self) -> str:
        """Its name, which its cgroup and container have too."""
        return self.folder.name

    @property
    def socket(self) -> Path:
        """See the module."""
        return self.folder / "agent.sock"

    @property
    def layers(self) -> Path:
        """See the module."""
        return self.folder / "layers"

    @property
    def disk(self) -> Path:
        """See the module."""
        return self.folder / "disk"

    @property
    def paused(self) -> Path:
        """See the module."""
        return self.folder / "paused"

    @property
    def root(self) -> Path:
        """See the module."""
        return self.folder / "root"


class Places(msgspec.Struct, frozen=True):
    """The folders of a node, below its home."""

    home: Path

    @property
    def sandboxes(self) -> Path:
        """See the module."""
        return self.home / "run" / "sandboxes"

    @property
    def environments(self) -> Path:
        """See the module."""
        return self.home / "run" / "environments"

    @property
    def identities(self) -> Path:
        """See the module."""
        return self.home / "run" / "identities"

    @property
    def runtime(self) -> Path:
        """See the module."""
        return self.home / "run" / "runtime"

    @property
    def bundle(self) -> Path:
        """See the module."""
        return self.home / "run" / "bundle"

    @property
    def views(self) -> Path:
        """See the module."""
        return self.home / "run" / "views"

    @property
    def skeleton(self) -> Path:
        """See the module."""
        return self.home / "run" / "skeleton"

    @property
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
