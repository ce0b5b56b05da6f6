"""User namespaces as descriptors, for mounts that show other ids than are on disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dsec_layers.linux import process

# Says a word when it is in its namespace, and stays there until its input ends.
_DWELLER = ("unshare", "--user", "--", "cat")


def open_userns(lines: Sequence[tuple[int, int, int]]) -> int:
    """A descriptor of a new user namespace with these lines (inside, outside, count) of both maps.

    The namespace ends with its last descriptor or mount. Raises OSError, CapabilityMissingError.
    """
    content = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)
    with process.start(_DWELLER, stdin=subprocess.PIPE) as dweller:
        assert dweller.stdin is not None
        assert dweller.stdout is not None
        dweller.stdin.write(b".")
        dweller.stdin.flush()
        if not dweller.stdout.read(1):
            assert dweller.stderr is not None
            raise OSError(f"no user namespace: {dweller.stderr.read().decode(errors='replace')}")
        proc = Path(f"/proc/{dweller.pid}")
        (proc / "uid_map").write_text(content)
        (proc / "gid_map").write_text(content)
        return os.open(proc / "ns/user", os.O_RDONLY | os.O_CLOEXEC)
