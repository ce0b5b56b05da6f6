"""The root file systems that conformance cases are built on."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.support.conformance import OLD_NS
from tests.support.rootfs import PROGRAMS, add_libraries, make_rootfs

_MORE: Final = (
    *("bash", "basename", "chgrp", "chown", "date", "dd", "dirname", "find", "head", "install"),
    *("mkfifo", "readlink", "rmdir", "sed", "sort", "tail", "tar", "truncate", "wc"),
)
_FOLDERS: Final = ("dev", "proc", "run", "sys", "usr/lib", "usr/sbin", "var/log", "srv")
_WHEELS: Final = Path("/usr/share/python-wheels")
_UNUSED: Final = ("__pycache__", "test", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter")


def make_small(root: Path) -> None:
    """A shell and common programs; /sbin is a link, as in merged distributions."""
    make_rootfs(root, sorted({*PROGRAMS, *_MORE}))
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "sbin").symlink_to("usr/sbin")
    for name in ("hostname", "hosts", "resolv.conf"):  # where engines mount their own
        (root / "etc" / name).touch()
    _settle(root)


def make_python(root: Path) -> None:
    """The small one with the Python of this machine's system, and pip."""
    make_small(root)
    asked = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    told = subprocess.run(["/usr/bin/python3", "-c", asked], capture_output=True, check=True)
    library = Path(told.stdout.decode().strip())
    shutil.copytree(
        library,
        root / library.relative_to("/"),
        symlinks=True,
        ignore=shutil.ignore_patterns(*_UNUSED, "config-*"),
    )
    shutil.copy("/usr/bin/python3", root / "bin/python3")
    for program in ("/usr/bin/python3", *map(str, library.glob("lib-dynload/*.so"))):
        add_libraries(root, program)
    (wheel,) = _WHEELS.glob("pip-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root / "usr/lib/python3/dist-packages")
    _settle(root)


def _settle(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)


BASES: Final[Mapping[str, Callable[[Path], None]]] = {"small": make_small, "python": make_python}
