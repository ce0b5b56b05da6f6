"""What OCI calls this machine."""

from __future__ import annotations

import platform
from typing import Final

_ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i686": "386",
    "armv7l": "arm",
}


def oci_architecture() -> str:
    """The architecture of this machine as OCI image indexes name it, e.g. `amd64`."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
