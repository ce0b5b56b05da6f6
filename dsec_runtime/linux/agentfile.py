"""The agent's program as a file that is nowhere: in memory, sealed, to be executed and not read.

A process that executes it belongs to the node's root in the kernel's eyes, since it may not read
its own program: neither root nor CAP_SYS_PTRACE in a user namespace come near it (ptrace(2)).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def load(program: Path) -> int:
    """A descriptor of a copy of `program`; sandboxes share its pages. Raises OSError."""
    fd = os.memfd_create("agent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(program.read_bytes())
        os.fchmod(fd, 0o111)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd
