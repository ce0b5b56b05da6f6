"""What this process may do beyond what its user may (capabilities(7))."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SYS_RESOURCE: Final = 24


def holds(capability: int) -> bool:
    """Whether the capability of this number is effective; root in a container may lack some."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False
