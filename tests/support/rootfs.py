"""Small root file systems made of programs of this machine, for containers that start at once."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = (
    *("sh", "cat", "chmod", "cp", "cut", "env", "grep", "hostname", "id", "ln", "ls", "mkdir"),
    *(
        "mknod",
        "mount",
        "mv",
        "rm",
        "sleep",
        "stat",
        "test",
        "touch",
        "tr",
        "true",
        "umount",
        "unshare",
    ),
)


def make_rootfs(root: Path, programs: Iterable[str] = PROGRAMS) -> None:
    """Fill `root` with `programs` in /bin, the libraries they need, passwd and group."""
    (root / "bin").mkdir(parents=True)
    for name in programs:
        program = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        assert program is not None, f"{name} is not installed"
        shutil.copy(program, root / "bin" / name)
        add_libraries(root, program)
    for folder, mode in (("etc", 0o755), ("tmp", 0o1777), ("root", 0o700)):
        (root / folder).mkdir(exist_ok=True)
        (root / folder).chmod(mode)
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1001::/home/user:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nusers:x:1001:\nwheel:x:10:user,other\n")


def add_libraries(root: Path, program: str) -> None:
    """Add the libraries that `program` of this machine needs and `root` lacks."""
    for library in _libraries(program):
        target = root / library.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)


def _libraries(program: str) -> list[str]:
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", listing)
